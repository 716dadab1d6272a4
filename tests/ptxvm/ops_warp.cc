// What lanes do together: shfl, vote, match, redux, activemask, and the barriers. Each needs the
// lanes that its mask names to be here, converged; else the finding is kPartialWarp.

#include <algorithm>

#include "ptxvm/decode.h"
#include "ptxvm/lanes.h"

namespace pf::ptxvm {
namespace {

// The member mask, after checking that its lanes and only its lanes are here.
u32 members(Warp& w, const Instr& in, u32 mask, u32 reg, const char* name) {
  int first = __builtin_ctz(mask);
  u32 named = w.r32(reg)[first] & w.exists;
  if (named & ~mask) {
    u32 gone = named & ~w.alive;
    fail(w, in, __builtin_ctz(named & ~mask), Kind::kPartialWarp,
         std::string(name) + ": this lane is named by the mask and " +
             (gone ? "has exited" : "is elsewhere (divergent)"));
  }
  each_lane(mask, [&](int l) {
    if (!(w.r32(reg)[l] >> l & 1))
      fail(w, in, l, Kind::kPartialWarp,
           std::string(name) + ": this lane is not named by its own mask");
    if ((w.r32(reg)[l] & w.exists) != named)
      fail(w, in, l, Kind::kPartialWarp, std::string(name) + ": lanes give different masks");
  });
  return named;
}

// PTX ISA, shfl.sync pseudo-code. mode: 0 up, 1 down, 2 bfly, 3 idx.
void shfl(Warp& w, const Instr& in, u32 mask) {
  members(w, in, mask, in.r[4], "shfl.sync");
  u32 value[32], found = 0;
  std::copy_n(w.r32(in.r[1]), 32, value);
  const u32 *bs = w.r32(in.r[2]), *cs = w.r32(in.r[3]);
  u32* d = w.r32(in.r[0]);
  u32 result[32];
  each_lane(mask, [&](int lane) {
    int b = static_cast<int>(bs[lane] & 31), c = static_cast<int>(cs[lane] & 31),
        segment = static_cast<int>(cs[lane] >> 8 & 31);
    int max_lane = (lane & segment) | (c & ~segment), min_lane = lane & segment, j = lane;
    bool p = false;
    switch (in.mode) {
      case 0:
        j = lane - b;
        p = j >= max_lane;
        break;
      case 1:
        j = lane + b;
        p = j <= max_lane;
        break;
      case 2:
        j = lane ^ b;
        p = j <= max_lane;
        break;
      default:
        j = min_lane | (b & ~segment);
        p = j <= max_lane;
        break;
    }
    if (!p) j = lane;
    if (!(mask >> j & 1))
      fail(w, in, lane, Kind::kPartialWarp,
           "shfl.sync: reads lane " + std::to_string(j) + ", which does not take part");
    result[lane] = value[j];
    found |= u32(p) << lane;
  });
  each_lane(mask, [&](int l) { d[l] = result[l]; });
  w.set_predicate(in.r[5], mask, found);
}
void select_shfl(Builder& b) {
  if (!b.take("sync")) b.fail("only shfl.sync is supported");
  b.in.mode = static_cast<uint8_t>(b.take_one({"up", "down", "bfly", "idx"}));
  b.type();
  b.in.r[0] = b.target(0, Type::kB32);
  b.in.r[5] = b.piped_predicate(0);
  for (size_t i = 1; i <= 4; ++i) b.in.r[i] = b.source(i, Type::kB32);
  b.in.fn = shfl;
}

// mode: 0 all, 1 any, 2 uni, 3 ballot.
void vote(Warp& w, const Instr& in, u32 mask) {
  u32 named = members(w, in, mask, in.r[2], "vote.sync"), p = w.predicate(in.r[1]) & named;
  if (in.mode == 3) {
    each_lane(mask, [&](int l) { w.r32(in.r[0])[l] = p; });
    return;
  }
  bool r = in.mode == 0 ? p == named : in.mode == 1 ? p != 0 : p == named || p == 0;
  w.set_predicate(in.r[0], mask, r ? ~0u : 0);
}
void select_vote(Builder& b) {
  if (!b.take("sync")) b.fail("only vote.sync is supported");
  b.in.mode = static_cast<uint8_t>(b.take_one({"all", "any", "uni", "ballot"}));
  b.type();
  b.in.r[0] = b.in.mode == 3 ? b.target(0, Type::kB32) : b.predicate(0);
  b.in.r[1] = b.predicate(1);
  b.in.r[2] = b.source(2, Type::kB32);
  b.in.fn = vote;
}

void match(Warp& w, const Instr& in, u32 mask) {
  u32 named = members(w, in, mask, in.r[2], "match.sync"), all = 0;
  auto value = [&](int l) { return in.size == 8 ? w.r64(in.r[1])[l] : u64(w.r32(in.r[1])[l]); };
  u32 result[32];
  each_lane(mask, [&](int l) {
    u32 same = 0;
    each_lane(named, [&](int k) { same |= u32(value(k) == value(l)) << k; });
    if (in.mode) {
      bool whole = same == named;
      all |= u32(whole) << l;
      same = whole ? same : 0;
    }
    result[l] = same;
  });
  each_lane(mask, [&](int l) { w.r32(in.r[0])[l] = result[l]; });
  if (in.mode) w.set_predicate(in.r[5], mask, all);
}
void select_match(Builder& b) {
  b.in.mode = b.take_one({"any", "all"}) == 1;
  if (!b.take("sync")) b.fail("only match.sync is supported");
  Type t = b.type();
  b.in.size = static_cast<u32>(size_of(t));
  b.in.r[0] = b.target(0, Type::kB32);
  b.in.r[5] = b.piped_predicate(0);
  b.in.r[1] = b.source(1, t);
  b.in.r[2] = b.source(2, Type::kB32);
  b.in.fn = match;
}

void redux(Warp& w, const Instr& in, u32 mask) {
  members(w, in, mask, in.r[2], "redux.sync");
  const u32* a = w.r32(in.r[1]);
  bool sign = in.type == Type::kS32;
  u32 r = a[__builtin_ctz(mask)];
  each_lane(mask & (mask - 1), [&](int l) {
    u32 v = a[l];
    bool less = sign ? static_cast<int32_t>(v) < static_cast<int32_t>(r) : v < r;
    switch (in.mode) {
      case 0:
        r += v;
        break;
      case 1:
        r = less ? v : r;
        break;
      case 2:
        r = less ? r : v;
        break;
      case 3:
        r &= v;
        break;
      case 4:
        r |= v;
        break;
      default:
        r ^= v;
        break;
    }
  });
  each_lane(mask, [&](int l) { w.r32(in.r[0])[l] = r; });
}
void select_redux(Builder& b) {
  if (!b.take("sync")) b.fail("only redux.sync is supported");
  b.in.mode = static_cast<uint8_t>(b.take_one({"add", "min", "max", "and", "or", "xor"}));
  b.in.type = b.type();
  b.in.r[0] = b.target(0, Type::kB32);
  b.in.r[1] = b.source(1, Type::kB32);
  b.in.r[2] = b.source(2, Type::kB32);
  b.in.fn = redux;
}

void activemask(Warp& w, const Instr& in, u32 mask) {
  each_lane(mask, [&](int l) { w.r32(in.r[0])[l] = mask; });
}

void warp_barrier(Warp& w, const Instr& in, u32 mask) {
  members(w, in, mask, in.r[0], "bar.warp.sync");
  w.block->shadow->warp_sync(w.id);
}

// Block barriers. mode: 0 sync, 1 arrive, 2 red; mode2 of red: 0 popc, 1 and, 2 or.
void block_barrier(Warp& w, const Instr& in, u32 mask) {
  int l = __builtin_ctz(mask);
  if (mask != w.alive)
    fail(w, in, __builtin_ctz(w.alive & ~mask), Kind::kDivergentBarrier,
         "a barrier that only a part of the warp reaches; this lane is elsewhere");
  if (w.alive != w.exists && !settings().exited_threads_may_skip_barriers)
    fail(w, in, __builtin_ctz(w.exists & ~w.alive), Kind::kDivergentBarrier,
         "a barrier after this lane of the warp has exited");
  u32 id = w.r32(in.r[1])[l], threads = in.r[2] ? w.r32(in.r[2])[l] : 0;
  if (id > 15)
    fail(w, in, l, Kind::kDivergentBarrier,
         "there is no barrier " + std::to_string(id) + " (0 to 15)");
  if (threads % 32 != 0)
    fail(w, in, l, Kind::kDivergentBarrier,
         "the thread count of a barrier is a multiple of 32, not " + std::to_string(threads));
  if (in.mode == 1) {
    BarrierState& state = w.block->barriers[id];
    state.arrived_threads += 32;
    Shadow::Knowledge mine = w.block->shadow->arrive(w.id);
    for (u32 v = 0; v < Shadow::kWarps; ++v) state.arrived[v] = std::max(state.arrived[v], mine[v]);
    return;
  }
  w.waiting = mask;
  w.barrier_id = id;
  w.barrier_threads = threads;
  w.barrier_pc = static_cast<u32>(&in - w.block->kernel->code.data());
  w.reduction = in.mode == 2 ? w.predicate(in.r[3]) & mask : 0;
}
void select_barrier(Builder& b) {
  b.take("cta");
  if (b.take("warp")) {
    if (!b.take("sync")) b.fail("unknown warp barrier");
    b.in.r[0] = b.source(0, Type::kB32);
    b.in.fn = warp_barrier;
    return;
  }
  b.take("aligned");
  b.in.mode = static_cast<uint8_t>(b.take_one({"sync", "arrive", "red"}));
  size_t i = 0;
  if (b.in.mode == 2) {
    b.in.mode2 = static_cast<uint8_t>(b.take_one({"popc", "and", "or"}));
    Type t = b.type();
    b.in.r[0] = t == Type::kPred ? b.predicate(i++) : b.target(i++, t);
  }
  b.in.r[1] = b.source(i++, Type::kU32);
  size_t left = b.n_operands() - i;
  if (left > (b.in.mode == 2 ? 1u : 0u)) b.in.r[2] = b.source(i++, Type::kU32);
  if (b.in.mode == 2) b.in.r[3] = b.predicate(i);
  if (b.in.mode == 1 && !b.in.r[2]) b.fail("arrive needs a thread count");
  b.in.flow = b.in.mode == 1 ? Flow::kPlain : Flow::kBarrier;
  b.in.fn = block_barrier;
}

void trap(Warp& w, const Instr& in, u32 mask) {
  fail(w, in, __builtin_ctz(mask), Kind::kTrap, "trap");
}

}  // namespace

void add_warp_ops(SelectorTable& t) {
  t["shfl"] = select_shfl;
  t["vote"] = select_vote;
  t["match"] = select_match;
  t["redux"] = select_redux;
  t["activemask"] = [](Builder& b) {
    b.type();
    b.in.r[0] = b.target(0, Type::kB32);
    b.in.fn = activemask;
  };
  t["bar"] = t["barrier"] = select_barrier;
  t["trap"] = t["brkpt"] = [](Builder& b) { b.in.fn = trap; };
}

}  // namespace pf::ptxvm
