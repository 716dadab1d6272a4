// Loads, stores, atomics, cp.async, fences, and the two built-in device functions (printf and
// assert). Every lane's access goes through `access`, which does the checking.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "base/dtype.h"
#include "ptxvm/decode.h"
#include "ptxvm/lanes.h"
#include "ptxvm/rounding.h"

namespace pf::ptxvm {
namespace {

bool is_signed(Type t) {
  return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64;
}

void addresses(Warp& w, u32 reg, int64_t disp, bool wide, u64* out) {
  if (wide) {
    const u64* a = w.r64(reg);
    for (int l = 0; l < 32; ++l) out[l] = a[l] + static_cast<u64>(disp);
  } else {
    const u32* a = w.r32(reg);
    for (int l = 0; l < 32; ++l) out[l] = a[l] + static_cast<u32>(disp);
  }
}

// n bytes of memory as a number, with a copy of known size for each.
u64 bits_at(const uint8_t* p, u32 n) {
  u64 v = 0;
  switch (n) {
    case 1:
      return *p;
    case 2:
      std::memcpy(&v, p, 2);
      return v;
    case 4:
      std::memcpy(&v, p, 4);
      return v;
    default:
      std::memcpy(&v, p, 8);
      return v;
  }
}
void put_bits(uint8_t* p, u64 v, u32 n) {
  switch (n) {
    case 1:
      *p = static_cast<uint8_t>(v);
      return;
    case 2:
      std::memcpy(p, &v, 2);
      return;
    case 4:
      std::memcpy(p, &v, 4);
      return;
    default:
      std::memcpy(p, &v, 8);
      return;
  }
}

// Registers for ld: r[1] address; list: targets. `size`: of an element; sat: the register is 64
// bits.
void load(Warp& w, const Instr& in, u32 mask) {
  u64 address[32];
  addresses(w, in.r[1], in.disp, in.address64, address);
  u32 n = in.size * in.vec;
  const u32* regs = &w.block->kernel->lists[in.list];
  each_lane(mask, [&](int l) {
    const uint8_t* p = access(w, in, l, in.space, address[l], n, Access::kRead, nullptr);
    for (u32 i = 0; i < in.vec; ++i) {
      u64 v = bits_at(p + i * in.size, in.size);
      if (is_signed(in.type))
        v = static_cast<u64>(static_cast<int64_t>(v << (64 - 8 * in.size)) >> (64 - 8 * in.size));
      if (in.sat)
        w.r64(regs[i])[l] = v;
      else
        w.r32(regs[i])[l] = static_cast<u32>(v);
    }
  });
  if (w.block->measure) measure_access(w, in, in.space, address, mask, n);
}
void load_nc(Warp& w, const Instr& in, u32 mask) {
  u64 address[32];
  addresses(w, in.r[1], in.disp, in.address64, address);
  each_lane(mask, [&](int l) {
    Region* r;
    u64 offset = 0;
    resolve(w, in, l, Space::kGlobal, address[l], in.size * in.vec, false, &r, &offset);
    if (w.block->races && r->checked &&
        w.block->shadow->written_in_launch(*r, offset, in.size * in.vec))
      fail(w, in, l, Kind::kNonCoherentRead,
           "ld.global.nc (__ldg, const __restrict__) reads byte " + std::to_string(offset) +
               " of " + r->label + ", which this launch has written");
  });
  load(w, in, mask);
}
void store(Warp& w, const Instr& in, u32 mask) {
  u64 address[32];
  addresses(w, in.r[0], in.disp, in.address64, address);
  u32 n = in.size * in.vec;
  const u32* regs = &w.block->kernel->lists[in.list];
  each_lane(mask, [&](int l) {
    uint8_t value[32];
    for (u32 i = 0; i < in.vec; ++i) {
      u64 v = in.sat ? w.r64(regs[i])[l] : w.r32(regs[i])[l];
      put_bits(value + i * in.size, v, in.size);
    }
    uint8_t* p = access(w, in, l, in.space, address[l], n, Access::kWrite, value);
    std::memcpy(p, value, n);
  });
  if (w.block->measure) measure_access(w, in, in.space, address, mask, n);
}

// .volatile, .relaxed, .acquire, .release and scopes; acquire and release also order.
void take_ordering(Builder& b) {
  int o = b.take_one({"weak", "volatile", "relaxed", "acquire", "release", "acq_rel"});
  b.in.strong = o >= 1;
  b.in.fence = o >= 3;
  b.take_one({"cta", "gpu", "sys", "cluster"});
}
void take_cache_hint(Builder& b) { b.take_one({"ca", "cg", "cs", "lu", "cv", "wb", "wt"}); }

void select_load(Builder& b) {
  take_ordering(b);
  take_cache_hint(b);
  bool nc = b.take("nc");
  b.in.space = b.space();
  b.take_one({"v2", "v4", "v8"});
  Type t = b.in.type = b.type();
  b.in.size = static_cast<u32>(size_of(t));
  b.in.r[1] = b.address(1, &b.in.disp);
  const Operand& first =
      b.operand(0).form == Operand::Form::kVector ? b.operand(0).parts.at(0) : b.operand(0);
  b.in.sat = b.is_wide(first, t);
  b.in.list = b.vector(0, b.in.sat ? Type::kB64 : Type::kB32, true, &b.in.vec);
  b.in.fn = nc ? load_nc : load;
}
void select_store(Builder& b) {
  take_ordering(b);
  take_cache_hint(b);
  b.in.space = b.space();
  b.take_one({"v2", "v4", "v8"});
  Type t = b.in.type = b.type();
  b.in.size = static_cast<u32>(size_of(t));
  b.in.r[0] = b.address(0, &b.in.disp);
  const Operand& first =
      b.operand(1).form == Operand::Form::kVector ? b.operand(1).parts.at(0) : b.operand(1);
  b.in.sat = b.is_wide(first, t);
  b.in.list =
      b.vector(1, b.in.sat ? (is_float(t) ? t : Type::kB64) : (size_of(t) == 4 ? t : Type::kB32),
               false, &b.in.vec);
  b.in.fn = store;
}

enum AtomOp : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExch, kCas, kInc, kDec };

u32 add_half(bool brain, u32 a, u32 b) {
  auto value = [&](u32 v) {
    return brain ? to_float(bf16{static_cast<uint16_t>(v)})
                 : to_float(f16{static_cast<uint16_t>(v)});
  };
  return static_cast<u32>(brain ? narrow(value(a) + value(b), 8, 7, kNearest)
                                : narrow(value(a) + value(b), 5, 10, kNearest));
}
u64 combine(AtomOp op, Type t, u64 old, u64 b, u64 c) {
  switch (op) {
    case kAnd:
      return old & b;
    case kOr:
      return old | b;
    case kXor:
      return old ^ b;
    case kExch:
      return b;
    case kCas:
      return old == b ? c : old;
    case kInc:
      return old >= b ? 0 : old + 1;
    case kDec:
      return old == 0 || old > b ? b : old - 1;
    case kAdd:
      switch (t) {
        case Type::kF32:
          return std::bit_cast<u32>(std::bit_cast<float>(static_cast<u32>(old)) +
                                    std::bit_cast<float>(static_cast<u32>(b)));
        case Type::kF64:
          return std::bit_cast<u64>(std::bit_cast<double>(old) + std::bit_cast<double>(b));
        case Type::kF16:
        case Type::kBf16:
          return add_half(t == Type::kBf16, static_cast<u32>(old), static_cast<u32>(b));
        case Type::kF16x2:
        case Type::kBf16x2:
          return add_half(t == Type::kBf16x2, static_cast<u32>(old) & 0xffff,
                          static_cast<u32>(b) & 0xffff) |
                 add_half(t == Type::kBf16x2, static_cast<u32>(old) >> 16,
                          static_cast<u32>(b) >> 16)
                     << 16;
        default:
          return old + b;
      }
    default:
      break;
  }
  bool first;
  if (t == Type::kS32)
    first = static_cast<int32_t>(old) < static_cast<int32_t>(b);
  else if (t == Type::kS64)
    first = static_cast<int64_t>(old) < static_cast<int64_t>(b);
  else
    first = old < b;
  return first == (op == kMin) ? old : b;
}

// atom and red. r: target, address, b, c. sat: no target (red).
void atomic(Warp& w, const Instr& in, u32 mask) {
  u64 address[32];
  addresses(w, in.r[1], in.disp, in.address64, address);
  bool wide = in.size == 8;
  auto reg = [&](u32 r, int l) {
    return wide ? w.r64(r)[l] : u64(w.r32(r)[l] & (in.size == 2 ? 0xffffu : ~0u));
  };
  if (in.fence) w.block->shadow->fence(w.id);
  each_lane(mask, [&](int l) {
    uint8_t* p = access(w, in, l, in.space, address[l], in.size, Access::kAtomic, nullptr);
    u64 old = 0;
    std::memcpy(&old, p, in.size);
    u64 value = combine(static_cast<AtomOp>(in.mode), in.type, old, reg(in.r[2], l),
                        in.mode == kCas ? reg(in.r[3], l) : 0);
    std::memcpy(p, &value, in.size);
    if (in.sat) return;
    if (wide)
      w.r64(in.r[0])[l] = old;
    else
      w.r32(in.r[0])[l] = static_cast<u32>(old);
  });
  if (in.space != Space::kShared) w.block->shadow->acquire();
  if (w.block->measure) measure_access(w, in, in.space, address, mask, in.size);
}
void select_atomic(Builder& b, bool has_target) {
  take_ordering(b);
  b.in.space = b.space();
  b.take("noftz");
  int op = b.take_one({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  if (op < 0) b.fail("no operation");
  b.in.mode = static_cast<uint8_t>(op);
  Type t = b.in.type = b.type();
  b.in.size = static_cast<u32>(size_of(t));
  size_t i = 0;
  if (has_target) b.in.r[0] = b.target(i++, t);
  b.in.sat = !has_target;
  b.in.r[1] = b.address(i++, &b.in.disp);
  b.in.r[2] = b.source(i++, t);
  if (op == kCas) b.in.r[3] = b.source(i++, t);
  b.in.fn = atomic;
}

// cp.async. r: shared address, global address, source size (or r[2] == r[3]: all).
void copy_async(Warp& w, const Instr& in, u32 mask) {
  u64 to[32], from[32];
  addresses(w, in.r[0], in.disp, in.address64, to);
  addresses(w, in.r[1], in.disp2, true, from);
  Block& b = *w.block;
  each_lane(mask, [&](int l) {
    u32 n = in.mode ? w.r32(in.r[2])[l] : in.size;
    if (in.mode2 && (w.predicate(in.r[3]) >> l & 1)) n = 0;
    if (n > in.size)
      fail(w, in, l, Kind::kAsyncCopy,
           "the source size " + std::to_string(n) + " is larger than the copy of " +
               std::to_string(in.size) + " bytes");
    if (b.alignment && (from[l] & (in.size - 1)))
      fail(w, in, l, Kind::kMisaligned,
           "the source of a cp.async of " + std::to_string(in.size) +
               " bytes is not a multiple of it");
    const uint8_t* source = nullptr;
    if (n > 0) {
      bool power = (n & (n - 1)) == 0;
      if (power) source = access(w, in, l, Space::kGlobal, from[l], n, Access::kRead, nullptr);
      for (u32 i = 0; !power && i < n; ++i) {
        const uint8_t* p = access(w, in, l, Space::kGlobal, from[l] + i, 1, Access::kRead, nullptr);
        if (i == 0) source = p;
      }
    }
    Region* r;
    u64 offset = 0;
    uint8_t* p = resolve(w, in, l, Space::kShared, to[l], in.size, true, &r, &offset);
    if (!b.shadow->begin_async(*r, offset, in.size, w.id, static_cast<u32>(l)))
      fail(w, in, l, b.shadow->conflict.kind, b.shadow->conflict.text);
    std::memset(p, 0xff, in.size);  // until it lands, nothing sensible is there
    w.copies.push_back({offset, source, in.size, n, static_cast<u32>(l), w.commits[l]});
  });
  if (b.measure) {
    measure_access(w, in, Space::kShared, to, mask, in.size);
    measure_access(w, in, Space::kGlobal, from, mask, in.size);
  }
}
void commit_group(Warp& w, const Instr&, u32 mask) {
  each_lane(mask, [&](int l) { ++w.commits[l]; });
}
void wait_group(Warp& w, const Instr& in, u32 mask) { complete_copies(w, mask, in.size); }
void wait_all(Warp& w, const Instr& in, u32 mask) {
  commit_group(w, in, mask);
  complete_copies(w, mask, 0);
}
void select_cp(Builder& b) {
  if (!b.take("async")) b.fail("only cp.async is supported");
  if (b.take("commit_group")) {
    b.in.fn = commit_group;
    return;
  }
  if (b.take("wait_all")) {
    b.in.fn = wait_all;
    return;
  }
  if (b.take("wait_group")) {
    b.in.size = static_cast<u32>(std::stoul(b.operand(0).number));
    b.in.fn = wait_group;
    return;
  }
  bool cg = b.take_one({"ca", "cg"}) == 1;
  if (!(b.take("shared") || b.take("shared::cta")) || !b.take("global"))
    b.fail("only shared from global is supported");
  b.in.r[1] = b.address(1, &b.in.disp2);
  b.in.r[0] = b.address(0, &b.in.disp);
  b.in.space = Space::kShared;
  b.in.size = static_cast<u32>(std::stoul(b.operand(2).number, nullptr, 0));
  if (b.in.size != 16 && (cg || (b.in.size != 4 && b.in.size != 8)))
    b.fail("unsupported copy size");
  if (b.n_operands() > 3) {
    b.in.mode2 = b.is_predicate(3);
    b.in.mode = !b.in.mode2;
    if (b.in.mode)
      b.in.r[2] = b.source(3, Type::kU32);
    else
      b.in.r[3] = b.predicate(3);
  }
  b.in.fn = copy_async;
}

void fence(Warp& w, const Instr&, u32) { w.block->shadow->fence(w.id); }
void select_fence(Builder& b) {
  b.take_one({"sc", "acq_rel", "acquire", "release"});
  b.take_one({"cta", "gl", "gpu", "sys", "cluster"});
  b.in.fn = fence;
}
void nothing(Warp&, const Instr&, u32) {}
void select_prefetch(Builder& b) {
  b.space();
  b.take_one({"L1", "L2"});
  b.take_one({"L2::evict_last", "L2::evict_normal"});
  b.in.fn = nothing;
}

u64 parameter(Warp& w, int lane, u32 offset, u32 n) {
  u64 v = 0;
  std::memcpy(&v, &w.local[static_cast<size_t>(lane) * w.block->kernel->local_bytes + offset], n);
  return v;
}
// A zero-terminated string in device memory.
std::string device_string(u64 address) {
  Region* r = DeviceMemory::get().find(address);
  if (r == nullptr) return "(bad string)";
  const char* s = reinterpret_cast<const char*>(r->data + (address - r->base));
  return std::string(s, strnlen(s, r->bytes - (address - r->base)));
}

}  // namespace

// Prints as the host's printf: the buffer holds each argument at its own alignment, 4 or 8 bytes.
void run_printf(Warp& w, const Instr& in, u32 mask) {
  const u32* regs = &w.block->kernel->lists[in.list];
  each_lane(mask, [&](int l) {
    std::string format = device_string(parameter(w, l, regs[0], 8)), out;
    u64 buffer = parameter(w, l, regs[1], 8);
    u64 at = 0;
    auto next = [&](u32 n) {
      at = (at + n - 1) / n * n;
      u64 v = 0;
      std::memcpy(&v, access(w, in, l, Space::kGeneric, buffer + at, n, Access::kRead, nullptr), n);
      at += n;
      return v;
    };
    int printed = 0;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        out += format[i];
        continue;
      }
      if (format[i + 1] == '%') {
        out += '%';
        ++i;
        continue;
      }
      size_t end = format.find_first_of("diouxXcsfFeEgGaAp", i + 1);
      if (end == std::string::npos) {
        out += format.substr(i);
        break;
      }
      std::string spec = format.substr(i, end - i + 1);
      char c = spec.back(), text[256];
      bool wide = spec.find('l') != std::string::npos || c == 'p' || c == 's' ||
                  std::strchr("fFeEgGaA", c) != nullptr;
      u64 v = next(wide ? 8 : 4);
      if (std::strchr("fFeEgGaA", c))
        std::snprintf(text, sizeof text, spec.c_str(), std::bit_cast<double>(v));
      else if (c == 's')
        std::snprintf(text, sizeof text, spec.c_str(), device_string(v).c_str());
      else if (wide)
        std::snprintf(text, sizeof text, spec.c_str(), v);
      else
        std::snprintf(text, sizeof text, spec.c_str(), static_cast<u32>(v));
      out += text;
      ++printed;
      i = end;
    }
    std::fputs(out.c_str(), stdout);
    u64 result = static_cast<u64>(printed);
    std::memcpy(&w.local[static_cast<size_t>(l) * w.block->kernel->local_bytes + regs[2]], &result,
                4);
  });
}

void run_assertfail(Warp& w, const Instr& in, u32 mask) {
  const u32* regs = &w.block->kernel->lists[in.list];
  int l = __builtin_ctz(mask);
  fail(w, in, l, Kind::kAssert,
       "assertion `" + device_string(parameter(w, l, regs[0], 8)) + "' failed, " +
           device_string(parameter(w, l, regs[1], 8)) + ":" +
           std::to_string(parameter(w, l, regs[2], 4)));
}

void add_memory_ops(SelectorTable& t) {
  t["ld"] = t["ldu"] = select_load;
  t["st"] = select_store;
  t["atom"] = [](Builder& b) { select_atomic(b, true); };
  t["red"] = [](Builder& b) { select_atomic(b, false); };
  t["cp"] = select_cp;
  t["membar"] = t["fence"] = select_fence;
  t["prefetch"] = t["prefetchu"] = select_prefetch;
  t["nanosleep"] = [](Builder& b) {
    b.type();
    b.in.fn = nothing;
  };
  t["griddepcontrol"] = [](Builder& b) {
    b.take_one({"wait", "launch_dependents"});
    b.in.fn = nothing;
  };
}

}  // namespace pf::ptxvm
