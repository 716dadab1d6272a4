#include "bench/probes.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace pf {
namespace {

// Without AVX-512: eight sums of 64-bit words, which the compiler turns into vectors.
void read_portable(const std::byte* p, int64_t bytes) {
  uint64_t sums[8] = {};
  const uint64_t* words = reinterpret_cast<const uint64_t*>(p);
  for (int64_t i = 0; i < bytes / 8; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += words[i + j];
  for (uint64_t s : sums) asm volatile("" ::"r"(s));
}

constexpr ProbeKernels kPortable = {read_portable, nullptr, nullptr};

constexpr int64_t kPieceBytes = 8 << 20;  // of one thread
constexpr int64_t kPieceTurns = 50'000;

Load alu_probe(ThreadPool& pool, void (*kernel)(int64_t), int64_t flops) {
  if (kernel == nullptr) return {};
  return [&pool, kernel, flops] {
    pool.run([&](int) { kernel(kPieceTurns); });
    return static_cast<double>(kPieceTurns * flops * pool.size());
  };
}

}  // namespace

const ProbeKernels& probe_kernels() {
  const ProbeKernels* best = probes_avx512();
  return best ? *best : kPortable;
}

ProbeMemory::ProbeMemory(size_t bytes) : data(bytes) { std::memset(data.as(), 1, bytes); }

Load read_probe(const ProbeMemory& memory, ThreadPool& pool) {
  // Every thread walks its own part in pieces, on and on.
  int64_t part = static_cast<int64_t>(memory.data.bytes()) / pool.size();
  int64_t piece = std::min(kPieceBytes, part) / 512 * 512;
  auto turn = std::make_shared<int64_t>(0);
  return [&memory, &pool, part, piece, turn] {
    int64_t at = *turn * piece;
    *turn = (*turn + 1) % (part / piece);
    pool.run([&](int thread) {
      int64_t from = (part * thread + at) / 64 * 64;
      probe_kernels().read(memory.data.as() + from, piece);
    });
    return static_cast<double>(piece * pool.size());
  };
}

Load bf16_probe(ThreadPool& pool) { return alu_probe(pool, probe_kernels().bf16, kBf16Flops); }
Load int8_probe(ThreadPool& pool) { return alu_probe(pool, probe_kernels().int8, kInt8Flops); }

double barrier_ns(ThreadPool& pool) {
  constexpr int kTurns = 2000;
  std::vector<double> times;
  pool.begin();
  for (int i = 0; i < 15; ++i) {
    double began = now_s();
    pool.run([&](int) {
      for (int t = 0; t < kTurns; ++t) pool.barrier().wait();
    });
    times.push_back(1e9 * (now_s() - began) / kTurns);
  }
  pool.end();
  return spread_of(std::move(times)).median;
}

}  // namespace pf
