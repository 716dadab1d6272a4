#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backend/cpu/buffer.h"
#include "base/thread_pool.h"
#include "bench/measure.h"

namespace pf {

// What the machine can do at best, measured beside every subject: how fast memory is read in order,
// and how many products the registers turn over. A FLOP is one multiplication or one addition.
struct ProbeKernels {
  // Reads [p, p + bytes) in order, from memory. Requires: 64-byte alignment, a multiple of 512.
  void (*read)(const std::byte* p, int64_t bytes);
  // n turns of 16 independent chains; kFlopsPer* each. Null: the machine lacks the instruction.
  void (*bf16)(int64_t n);
  void (*int8)(int64_t n);
};
inline constexpr int64_t kBf16Flops = 16 * 32 * 2;  // vdpbf16ps: 32 multiply-adds
inline constexpr int64_t kInt8Flops = 16 * 64 * 2;  // vpdpbusd: 64

const ProbeKernels* probes_avx512();  // null where the machine or the build lacks AVX-512
const ProbeKernels& probe_kernels();  // the best there is

// Larger than any cache. Shared by the probes of several pools.
struct ProbeMemory {
  explicit ProbeMemory(size_t bytes);
  Buffer data;
};

// The probes of one pool; all its threads take part. Loads count bytes or FLOPs and borrow both.
// An ALU load is empty where the machine lacks the instruction.
Load read_probe(const ProbeMemory& memory, ThreadPool& pool);
Load bf16_probe(ThreadPool& pool);
Load int8_probe(ThreadPool& pool);

// Nanoseconds per meeting of all threads; the median of several runs.
double barrier_ns(ThreadPool& pool);

}  // namespace pf
