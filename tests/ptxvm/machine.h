#pragma once
// The running machine: a block of warps over a decoded kernel, and what the handlers of
// instructions (ops_*.cc) may use.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ptxvm/memory.h"
#include "ptxvm/ptx.h"
#include "ptxvm/ptxvm.h"
#include "ptxvm/shadow.h"

namespace pf::ptxvm {

struct Block;

// A cp.async between issue and completion.
struct AsyncCopy {
  uint64_t target = 0;  // offset in shared memory
  const uint8_t* source = nullptr;
  uint32_t bytes = 0, source_bytes = 0, lane = 0;
  uint32_t group = 0;  // of its lane: the number of commits before it
};

struct Warp {
  Block* block = nullptr;
  uint32_t id = 0;
  uint32_t exists = 0, alive = 0;  // lanes
  // Lanes that wait at a barrier; the warp does not run while any does.
  uint32_t waiting = 0, barrier_id = 0, barrier_threads = 0, barrier_pc = 0;
  uint32_t carry = 0;      // the condition code of add.cc and friends
  uint32_t reduction = 0;  // predicate each waiting lane brought to bar.red
  bool converged = true;   // all living lanes at `common_pc`
  uint32_t common_pc = 0;
  uint32_t pc[32] = {};
  uint64_t steps = 0;
  std::vector<uint32_t> words;  // register file: 32 lanes per register, 64-bit ones twice as long
  std::vector<uint32_t> preds;  // one bit per lane
  std::vector<uint8_t> local;   // 32 times Kernel::local_bytes
  std::vector<AsyncCopy> copies;
  uint32_t commits[32] = {};

  uint32_t* r32(uint32_t offset) { return &words[offset]; }
  uint64_t* r64(uint32_t offset) { return reinterpret_cast<uint64_t*>(&words[offset]); }
  uint32_t predicate(uint32_t code) const { return preds[code >> 1] ^ (code & 1 ? ~0u : 0u); }
  void set_predicate(uint32_t code, uint32_t mask, uint32_t value) {
    uint32_t& p = preds[code >> 1];
    p = (p & ~mask) | (value & mask);
  }
};

// Named barriers 0..15: what arrivals without waiting have brought.
struct BarrierState {
  uint32_t arrived_threads = 0;
  Shadow::Knowledge arrived = {};
};

struct Block {
  Kernel* kernel = nullptr;
  Dim3 grid, dim, id;
  uint32_t n_threads = 0;
  std::vector<Warp> warps;
  BarrierState barriers[16];
  Region shared, params;
  Shadow* shadow = nullptr;
  bool races = true, uninitialised = true, alignment = true, measure = true;
  uint64_t max_steps = 0, steps = 0;
  uint64_t rng = 0;
};

// Ends the launch with a finding at this instruction and lane (-1: of no lane in particular).
[[noreturn]] void fail(const Warp& warp, const Instr& in, int lane, Kind kind, std::string message);

// For the lanes in mask.
template <class F>
void each_lane(uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(__builtin_ctz(mask));
}

// --- memory, from the handlers (access.cc) ---
enum class Access : uint8_t { kRead, kWrite, kAtomic };
// Checks one lane's access of n bytes in every way and returns the bytes. `value`: what will be
// stored, if known. Addresses are as the instruction's space has them.
uint8_t* access(Warp& warp, const Instr& in, int lane, Space space, uint64_t address, uint32_t n,
                Access kind, const uint8_t* value);
// Bounds and alignment only; sets the region and the offset in it. Null region: local memory.
uint8_t* resolve(Warp& warp, const Instr& in, int lane, Space space, uint64_t address, uint32_t n,
                 bool writes, Region** region, uint64_t* offset);
// Adds the wavefronts or sectors of one warp access to the instruction's counters.
void measure_access(Warp& warp, const Instr& in, Space space, const uint64_t* address,
                    uint32_t mask, uint32_t n);
// Finishes the copies of the lanes in mask but for their `keep_groups` youngest groups.
void complete_copies(Warp& warp, uint32_t mask, uint32_t keep_groups);

// True when any block ended early; the finding is recorded (report.cc).
bool run_launch(Kernel& kernel, Dim3 grid, Dim3 block, size_t dynamic_shared_bytes, void** args);
void record(Finding finding);
// Where the instruction comes from: the innermost position outside the CUDA headers as file and
// line, and the call site when that was inlined.
void locate(const Kernel& kernel, const Instr& in, std::string* file, int* line,
            std::string* inlined_at);

}  // namespace pf::ptxvm
