// The interpreter. A warp runs the lanes that stand at its lowest pc until they meet others, split,
// wait or leave: lanes that left a branch by different sides meet again at the first common
// instruction. A block runs its warps round robin to their next barrier, or, with a seed, in random
// order and slices of random length. Blocks run one after another.

#include "ptxvm/machine.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace pf::ptxvm {
namespace {

// What a register holds before it is written: NaN as f32 and as two f16, no likely integer, and as
// the distance of a shuffle 0, with which no sum over lanes is right (any odd one may make up for
// another that is missing).
constexpr uint32_t kJunk = 0xffa5fe40;
constexpr uint32_t kJunkPredicate = 0x5a5a5a5a;  // true in half of the lanes

uint32_t random_below(uint64_t& state, uint32_t n) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<uint32_t>((state >> 33) % n);
}

// Groups the living lanes: pc and lanes of the lowest, and the pc of the next higher.
void pick(Warp& w, uint32_t* pc, uint32_t* lanes, uint32_t* other) {
  *other = ~0u;
  if (w.converged) {
    *pc = w.common_pc;
    *lanes = w.alive;
    return;
  }
  *pc = ~0u;
  *lanes = 0;
  each_lane(w.alive, [&](int l) { *pc = std::min(*pc, w.pc[l]); });
  each_lane(w.alive, [&](int l) {
    if (w.pc[l] == *pc)
      *lanes |= 1u << l;
    else
      *other = std::min(*other, w.pc[l]);
  });
  if (*other == ~0u) {
    w.converged = true;
    w.common_pc = *pc;
  }
}
void put_back(Warp& w, uint32_t lanes, uint32_t pc) {
  if (w.converged)
    w.common_pc = pc;
  else
    each_lane(lanes, [&](int l) { w.pc[l] = pc; });
}

void leave(Warp& w, const Instr& in, uint32_t lanes) {
  for (const AsyncCopy& c : w.copies)
    if (lanes >> c.lane & 1)
      fail(w, in, static_cast<int>(c.lane), Kind::kAsyncCopy,
           "the thread exits with a cp.async in flight");
  w.alive &= ~lanes;
}

[[noreturn]] void too_long(Warp& w, const Instr& in) {
  fail(w, in, -1, Kind::kStepLimit,
       "the block has run " + std::to_string(w.block->max_steps) +
           " warp instructions: an endless loop?");
}

// Lanes of one group split at a branch.
void split(Warp& w, uint32_t lanes, uint32_t taken, uint32_t target, uint32_t next) {
  w.converged = false;
  each_lane(lanes, [&](int l) { w.pc[l] = taken >> l & 1 ? target : next; });
}
void split_indexed(Warp& w, const Instr& in, uint32_t lanes, uint32_t taken, uint32_t next) {
  w.converged = false;
  each_lane(lanes, [&](int l) {
    uint32_t index = w.r32(in.r[0])[l];
    if ((taken >> l & 1) && index >= in.size)
      fail(w, in, l, Kind::kOutOfBounds, "an indexed branch past its list");
    w.pc[l] = taken >> l & 1 ? w.block->kernel->lists[in.list + index] : next;
  });
}

// Runs until the warp waits, ends, or has used its slice (0: no limit).
void run_warp(Warp& w, uint32_t slice) {
  Block& b = *w.block;
  const Instr* code = b.kernel->code.data();
  Counters* counters = b.kernel->counters.data();
  uint64_t end = slice ? w.steps + slice : ~0ull;
  while (w.alive && !w.waiting && w.steps < end) {
    uint32_t pc, lanes, other;
    pick(w, &pc, &lanes, &other);
    while (lanes && pc < other && w.steps < end) {
      const Instr& in = code[pc];
      uint32_t active = lanes & w.predicate(in.guard);
      ++w.steps;
      if (++b.steps > b.max_steps) too_long(w, in);
      ++counters[pc].warp_steps;
      counters[pc].lane_steps += static_cast<uint32_t>(__builtin_popcount(active));
      switch (in.flow) {
        case Flow::kPlain:
          if (active) in.fn(w, in, active);
          ++pc;
          break;
        case Flow::kBranch:
          if (active == lanes)
            pc = in.target;
          else if (active == 0)
            ++pc;
          else
            split(w, lanes, active, in.target, pc + 1), lanes = 0;
          break;
        case Flow::kBranchIndexed:
          split_indexed(w, in, lanes, active, pc + 1);
          lanes = 0;
          break;
        case Flow::kExit:
          leave(w, in, active);
          lanes &= ~active;
          ++pc;
          break;
        case Flow::kBarrier:
          if (active) in.fn(w, in, active);
          ++pc;
          if (w.waiting) {
            put_back(w, lanes, pc);
            return;
          }
          break;
      }
    }
    if (lanes) put_back(w, lanes, pc);
  }
}

const Instr& barrier_of(const Warp& w) { return w.block->kernel->code[w.barrier_pc]; }

void release(Block& b, uint32_t id, uint32_t members) {
  int count = 0, total = 0;
  for (Warp& w : b.warps) {
    if (!(members >> w.id & 1)) continue;
    count += __builtin_popcount(w.reduction);
    total += __builtin_popcount(w.waiting);
  }
  for (Warp& w : b.warps) {
    if (!(members >> w.id & 1)) continue;
    const Instr& in = barrier_of(w);
    if (in.mode == 2 && in.mode2 == 0)
      each_lane(w.waiting, [&](int l) { w.r32(in.r[0])[l] = static_cast<uint32_t>(count); });
    else if (in.mode == 2)
      w.set_predicate(in.r[0], w.waiting, (in.mode2 == 1 ? count == total : count > 0) ? ~0u : 0);
    w.waiting = 0;
  }
  b.shadow->barrier(members, b.barriers[id].arrived);
  b.barriers[id] = {};
}

// Releases barriers that are complete; true when any was.
bool resolve_barriers(Block& b) {
  bool any = false;
  for (uint32_t id = 0; id < 16; ++id) {
    uint32_t members = 0, here = b.barriers[id].arrived_threads, want = 0;
    Warp* first = nullptr;
    for (Warp& w : b.warps) {
      if (!w.waiting || w.barrier_id != id) continue;
      members |= 1u << w.id;
      here += 32;
      want = w.barrier_threads;
      if (first != nullptr && id == 0 && want == 0 && w.barrier_pc != first->barrier_pc)
        fail(w, barrier_of(w), 0, Kind::kDivergentBarrier,
             "__syncthreads of one block at two places: warp " + std::to_string(first->id) +
                 " waits at line " +
                 std::to_string(
                     barrier_of(*first).loc >= 0
                         ? b.kernel->locs[static_cast<size_t>(barrier_of(*first).loc)].line
                         : 0));
      if (first == nullptr) first = &w;
    }
    if (first == nullptr) continue;
    if (want == 0) {
      want = 0;
      for (Warp& w : b.warps) {
        if (w.alive)
          want += 32;
        else if (!settings().exited_threads_may_skip_barriers)
          fail(*first, barrier_of(*first), 0, Kind::kDivergentBarrier,
               "a barrier that warp " + std::to_string(w.id) + " never reaches: it has exited");
      }
    }
    if (here < want) continue;
    release(b, id, members);
    any = true;
  }
  return any;
}

void start_warp(Block& b, uint32_t id, bool first_block) {
  Warp& w = b.warps[id];
  const Kernel& k = *b.kernel;
  w.block = &b;
  w.id = id;
  uint32_t n = std::min(32u, b.n_threads - id * 32);
  w.exists = w.alive = n == 32 ? ~0u : (1u << n) - 1;
  w.waiting = 0;
  w.converged = true;
  w.common_pc = 0;
  w.copies.clear();
  std::memset(w.commits, 0, sizeof w.commits);
  std::fill(w.local.begin(), w.local.end(), uint8_t{0xff});
  auto all = [&](uint32_t special, uint32_t v) { std::fill_n(w.r32(special * 32), 32, v); };
  if (first_block) {  // what no block changes
    w.words.assign(k.n_words, kJunk);
    w.preds.assign(k.n_preds, kJunkPredicate);
    w.preds[kPredTrue] = ~0u;
    w.local.assign(size_t{32} * k.local_bytes, 0xff);
    for (auto [reg, v] : k.constants32) std::fill_n(w.r32(reg), 32, v);
    for (auto [reg, v] : k.constants64) std::fill_n(w.r64(reg), 32, v);
    uint32_t dynamic = (k.shared_bytes + k.dynamic_align - 1) / k.dynamic_align * k.dynamic_align;
    for (uint32_t reg : k.dynamic_base32) std::fill_n(w.r32(reg), 32, kSharedStart + dynamic);
    for (uint32_t reg : k.dynamic_base64)
      std::fill_n(w.r64(reg), 32, uint64_t{kSharedStart} + dynamic);
    for (uint32_t l = 0; l < 32; ++l) {
      uint32_t t = id * 32 + l;
      w.r32(kTidX * 32)[l] = t % b.dim.x;
      w.r32(kTidY * 32)[l] = t / b.dim.x % b.dim.y;
      w.r32(kTidZ * 32)[l] = t / (b.dim.x * b.dim.y);
      w.r32(kLaneid * 32)[l] = l;
      uint32_t eq = 1u << l;
      w.r32(kLanemaskEq * 32)[l] = eq;
      w.r32(kLanemaskLt * 32)[l] = eq - 1;
      w.r32(kLanemaskLe * 32)[l] = eq | (eq - 1);
      w.r32(kLanemaskGt * 32)[l] = ~(eq | (eq - 1));
      w.r32(kLanemaskGe * 32)[l] = ~(eq - 1);
    }
    all(kNtidX, b.dim.x), all(kNtidY, b.dim.y), all(kNtidZ, b.dim.z);
    all(kNctaidX, b.grid.x), all(kNctaidY, b.grid.y), all(kNctaidZ, b.grid.z);
    all(kWarpid, id), all(kNwarpid, static_cast<uint32_t>(b.warps.size())), all(kGridid, 0);
    all(kNsmid, static_cast<uint32_t>(settings().device.n_sms));
    all(kTotalSmem, static_cast<uint32_t>(b.shared.bytes)),
        all(kDynamicSmem, static_cast<uint32_t>(b.shared.bytes) - dynamic);
  }
  all(kCtaidX, b.id.x), all(kCtaidY, b.id.y), all(kCtaidZ, b.id.z), all(kSmid, 0), all(kClock, 0);
}

void run_block(Block& b, bool first_block, uint32_t seed) {
  b.shadow->begin_block(b.races, settings().same_value_writes_allowed);
  b.steps = 0;
  std::fill(b.shared.written.begin(), b.shared.written.end(), uint8_t{0});
  std::memset(b.shared.data, 0xff, b.shared.bytes);
  for (BarrierState& s : b.barriers) s = {};
  auto n = static_cast<uint32_t>(b.warps.size());
  for (uint32_t i = 0; i < n; ++i) start_warp(b, i, first_block);
  for (;;) {
    uint32_t start = seed ? random_below(b.rng, n) : 0;
    bool ran = false, living = false;
    for (uint32_t i = 0; i < n; ++i) {
      Warp& w = b.warps[(start + i) % n];
      living |= w.alive != 0;
      if (!w.alive || w.waiting) continue;
      run_warp(w, seed ? 1 + random_below(b.rng, 64) : 0);
      ran = true;
      if (seed) break;
    }
    if (!living && !ran) return;
    if (ran && seed) continue;
    if (resolve_barriers(b) || ran) continue;
    for (Warp& w : b.warps)
      if (w.waiting)
        fail(w, barrier_of(w), 0, Kind::kDeadlock,
             "every warp waits; barrier " + std::to_string(w.barrier_id) + " is never complete");
  }
}

// Numbers of the launch against the kernel's and the architecture's limits; throws.
void check_launch(const Kernel& k, Dim3 grid, Dim3 block, size_t shared_bytes) {
  auto bad = [&](Kind kind, std::string text) {
    Finding f;
    f.kind = kind;
    f.message = std::move(text);
    f.kernel = k.name;
    if (!k.code.empty()) locate(k, k.code[0], &f.file, &f.line, &f.inlined_at);
    throw f;
  };
  uint64_t n = uint64_t{block.x} * block.y * block.z;
  if (n == 0 || n > 1024 || block.z > 64)
    bad(Kind::kLaunchConfig, "a block of " + std::to_string(n) + " threads");
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      grid.x > 0x7fffffff)
    bad(Kind::kLaunchConfig, "a grid of " + std::to_string(grid.x) + " x " +
                                 std::to_string(grid.y) + " x " + std::to_string(grid.z) +
                                 " blocks");
  if (k.max_threads && n > k.max_threads)
    bad(Kind::kLaunchConfig, std::to_string(n) + " threads; __launch_bounds__ says at most " +
                                 std::to_string(k.max_threads));
  if (k.required_threads && n != k.required_threads)
    bad(Kind::kLaunchConfig,
        std::to_string(n) + " threads; the kernel requires " + std::to_string(k.required_threads));
  if (shared_bytes > settings().device.shared_per_block_optin_bytes)
    bad(Kind::kSharedMemoryLimit,
        std::to_string(shared_bytes) + " bytes of shared memory; " + settings().device.name +
            " allows " + std::to_string(settings().device.shared_per_block_optin_bytes));
}

}  // namespace

void fail(const Warp& w, const Instr& in, int lane, Kind kind, std::string message) {
  const Block& b = *w.block;
  Finding f;
  f.kind = kind;
  f.message = std::move(message);
  f.kernel = b.kernel->name;
  if (in.text >= 0) f.ptx = b.kernel->texts[static_cast<size_t>(in.text)];
  locate(*b.kernel, in, &f.file, &f.line, &f.inlined_at);
  f.block[0] = static_cast<int>(b.id.x), f.block[1] = static_cast<int>(b.id.y),
  f.block[2] = static_cast<int>(b.id.z);
  if (lane >= 0) {
    uint32_t t = w.id * 32 + static_cast<uint32_t>(lane);
    f.thread[0] = static_cast<int>(t % b.dim.x);
    f.thread[1] = static_cast<int>(t / b.dim.x % b.dim.y);
    f.thread[2] = static_cast<int>(t / (b.dim.x * b.dim.y));
  }
  throw f;
}

bool run_launch(Kernel& kernel, Dim3 grid, Dim3 dim, size_t dynamic_shared_bytes, void** args) {
  static Shadow shadow;  // its block numbers go on from launch to launch
  const Settings& s = settings();
  try {
    uint32_t dynamic = (kernel.shared_bytes + kernel.dynamic_align - 1) / kernel.dynamic_align *
                       kernel.dynamic_align;
    size_t shared_bytes =
        dynamic_shared_bytes ? dynamic + dynamic_shared_bytes : kernel.shared_bytes;
    check_launch(kernel, grid, dim, shared_bytes);
    Block b;
    b.kernel = &kernel;
    b.grid = grid;
    b.dim = dim;
    b.n_threads = dim.x * dim.y * dim.z;
    b.warps.resize((b.n_threads + 31) / 32);
    b.shadow = &shadow;
    b.races = s.races, b.uninitialised = s.uninitialised, b.alignment = s.alignment,
    b.measure = s.measure;
    b.max_steps = s.max_steps;
    b.rng = s.seed * 0x9e3779b97f4a7c15ull;
    std::vector<uint8_t> shared_data(std::max<size_t>(shared_bytes, 16)),
        param_data(kernel.param_bytes + 16);
    for (size_t i = 0; i < kernel.params.size(); ++i)
      std::memcpy(&param_data[kernel.params[i].offset], args[i], kernel.params[i].bytes);
    b.shared.base = kSharedStart;
    b.shared.bytes = shared_bytes;
    b.shared.data = shared_data.data();
    b.shared.is_shared = true;
    b.shared.label = "shared memory";
    b.shared.written.assign((shared_bytes + 3) / 4 + 1, 0);
    b.shared.shadow = std::make_unique<CellArray>((shared_bytes + 3) / 4 + 1);
    b.params.base = kParamBase;
    b.params.bytes = kernel.param_bytes;
    b.params.data = param_data.data();
    b.params.label = "the kernel's parameters";
    b.params.checked = false;
    shadow.begin_launch();
    uint64_t n_blocks = uint64_t{grid.x} * grid.y * grid.z;
    std::vector<uint32_t> order(n_blocks);
    std::iota(order.begin(), order.end(), 0u);
    if (s.seed)
      for (uint32_t i = static_cast<uint32_t>(n_blocks); i > 1; --i)
        std::swap(order[i - 1], order[random_below(b.rng, i)]);
    bool first = true;
    for (uint32_t i : order) {
      b.id = {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
      run_block(b, first, s.seed);
      first = false;
    }
  } catch (Finding& f) {
    record(std::move(f));
    return false;
  }
  return true;
}

}  // namespace pf::ptxvm
