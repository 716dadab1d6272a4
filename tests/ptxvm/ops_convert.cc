// mov (and its packing of vectors), cvt, cvta, isspacep. Semantics: PTX ISA section "Data Movement
// and Conversion". A conversion goes through one exact value: an integer or a long double.

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/dtype.h"
#include "ptxvm/decode.h"
#include "ptxvm/halves.h"
#include "ptxvm/lanes.h"
#include "ptxvm/rounding.h"

namespace pf::ptxvm {
namespace {

bool is_signed(Type t) {
  return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64;
}

void move32(Warp& w, const Instr& in, u32 mask) {
  u32 *d = w.r32(in.r[0]), *a = w.r32(in.r[1]);
  for_lanes(mask, [=](int l) { d[l] = a[l]; });
}
void move64(Warp& w, const Instr& in, u32 mask) {
  u64 *d = w.r64(in.r[0]), *a = w.r64(in.r[1]);
  for_lanes(mask, [=](int l) { d[l] = a[l]; });
}
void move_predicate(Warp& w, const Instr& in, u32 mask) {
  w.set_predicate(in.r[0], mask, w.predicate(in.r[1]));
}
void read_clock(Warp& w, const Instr& in, u32 mask) {
  each_lane(mask, [&](int l) {
    if (in.size == 8)
      w.r64(in.r[0])[l] = w.steps * 4;
    else
      w.r32(in.r[0])[l] = static_cast<u32>(w.steps * 4);
  });
}
// mov.b32 d, {a, b} and back. size: bytes of a part; vec: parts; type: of the whole.
void pack(Warp& w, const Instr& in, u32 mask) {
  const u32* regs = &w.block->kernel->lists[in.list];
  each_lane(mask, [&](int l) {
    u64 v = 0;
    for (u32 i = 0; i < in.vec; ++i)
      v |= (u64(w.r32(regs[i])[l]) & (~u64{0} >> (64 - 8 * in.size))) << (8 * in.size * i);
    if (size_of(in.type) == 8)
      w.r64(in.r[0])[l] = v;
    else
      w.r32(in.r[0])[l] = static_cast<u32>(v);
  });
}
void unpack(Warp& w, const Instr& in, u32 mask) {
  const u32* regs = &w.block->kernel->lists[in.list];
  each_lane(mask, [&](int l) {
    u64 v = size_of(in.type) == 8 ? w.r64(in.r[1])[l] : w.r32(in.r[1])[l];
    for (u32 i = 0; i < in.vec; ++i)
      w.r32(regs[i])[l] =
          static_cast<u32>(v >> (8 * in.size * i) & (~u64{0} >> (64 - 8 * in.size)));
  });
}

void select_mov(Builder& b) {
  Type t = b.in.type = b.type();
  bool to_vector = b.operand(0).form == Operand::Form::kVector,
       from_vector = b.operand(1).form == Operand::Form::kVector;
  if (t == Type::kPred) {
    b.in.r[0] = b.predicate(0);
    b.in.r[1] = b.predicate(1);
    b.in.fn = move_predicate;
  } else if (to_vector || from_vector) {
    size_t n = b.operand(to_vector ? 0 : 1).parts.size();
    b.in.size = static_cast<u32>(static_cast<size_t>(size_of(t)) / n);
    if (b.in.size > 4 || n > 4) b.fail("a vector of this shape is not supported");
    b.in.list =
        b.vector(to_vector ? 0 : 1, b.in.size == 4 ? Type::kB32 : Type::kB16, to_vector, &b.in.vec);
    b.in.r[to_vector] = to_vector ? b.source(1, t) : b.target(0, t);
    b.in.fn = to_vector ? unpack : pack;
  } else {
    const std::string& from = b.operand(1).name;
    bool wide = size_of(t) == 8;
    b.in.r[0] = b.target(0, t);
    b.in.r[1] = b.source(1, t);
    b.in.size = wide ? 8 : 4;
    bool clock =
        from == "%clock" || from == "%clock64" || from == "%globaltimer" || from == "%clock_hi";
    b.in.fn = clock ? read_clock : wide ? move64 : move32;
  }
}

// mode of cvt: low bits a Rounding; kIntegral: round to an integer value in that direction.
constexpr uint8_t kIntegral = 4;

long double to_integral(long double v, Rounding r) {
  switch (r) {
    case kNearest:
      return std::nearbyint(v);
    case kZero:
      return std::trunc(v);
    case kDown:
      return std::floor(v);
    default:
      return std::ceil(v);
  }
}
long double read_float(Type t, u64 v) {
  switch (t) {
    case Type::kF16:
      return to_float(f16{static_cast<uint16_t>(v)});
    case Type::kBf16:
      return to_float(bf16{static_cast<uint16_t>(v)});
    case Type::kF32:
      return std::bit_cast<float>(static_cast<u32>(v));
    default:
      return std::bit_cast<double>(v);
  }
}
u64 write_float(Type t, long double v, Rounding r) {
  switch (t) {
    case Type::kF16:
      return narrow(v, 5, 10, r);
    case Type::kBf16:
      return narrow(v, 8, 7, r);
    case Type::kF32:
      return narrow(v, 8, 23, r);
    default:
      return narrow(v, 11, 52, r);
  }
}
u64 integer_bits(Type t, __int128 v, bool clamp) {
  int bits = 8 * size_of(t);
  __int128 lo = is_signed(t) ? -(__int128(1) << (bits - 1)) : 0,
           hi = is_signed(t) ? (__int128(1) << (bits - 1)) - 1 : (__int128(1) << bits) - 1;
  if (clamp) v = std::clamp(v, lo, hi);
  return static_cast<u64>(v) & (bits == 64 ? ~u64{0} : (u64{1} << bits) - 1);
}
__int128 read_integer(Type t, u64 v) {
  int unused = 64 - 8 * size_of(t);
  return is_signed(t) ? __int128(static_cast<s64>(v << unused) >> unused)
                      : __int128(v << unused >> unused);
}

u64 convert(const Instr& in, u64 v) {
  Type to = in.type, from = in.type2;
  auto r = static_cast<Rounding>(in.mode & 3);
  if (!is_float(from)) {
    __int128 x = read_integer(from, v);
    if (is_float(to)) return write_float(to, static_cast<long double>(x), r);
    u64 bits = integer_bits(to, x, in.sat);
    return is_signed(to) && size_of(to) < 4
               ? static_cast<u64>(static_cast<u32>(static_cast<int32_t>(read_integer(to, bits))))
               : bits;
  }
  long double x = read_float(from, v);
  if (in.ftz && from == Type::kF32 && std::fpclassify(static_cast<float>(x)) == FP_SUBNORMAL)
    x = std::copysign(0.0L, x);
  if (!is_float(to)) {  // NaN gives 0, the rest is clamped to the target's range
    if (x != x) return 0;
    x = std::clamp(to_integral(x, r), -0x1p100L, 0x1p100L);
    u64 bits = integer_bits(to, static_cast<__int128>(x), true);
    return is_signed(to) && size_of(to) < 4
               ? static_cast<u64>(static_cast<u32>(static_cast<int32_t>(read_integer(to, bits))))
               : bits;
  }
  if (in.mode & kIntegral) x = x == x && !std::isinf(x) ? std::copysign(to_integral(x, r), x) : x;
  if (in.sat) x = x > 0 ? std::min(x, 1.0L) : 0;  // NaN and -0 too
  if (in.mode2) x = x < 0 ? 0 : x;                // .relu
  if (in.ftz && to == Type::kF32 && x != 0 && std::fabs(x) < 0x1p-126L) x = std::copysign(0.0L, x);
  return write_float(to, x, in.mode & kIntegral ? kNearest : r);
}
void cvt(Warp& w, const Instr& in, u32 mask) {
  bool wide_to = size_of(in.type) == 8, wide_from = size_of(in.type2) == 8;
  each_lane(mask, [&](int l) {
    u64 v = convert(in, wide_from ? w.r64(in.r[1])[l] : w.r32(in.r[1])[l]);
    if (wide_to)
      w.r64(in.r[0])[l] = v;
    else
      w.r32(in.r[0])[l] = static_cast<u32>(v);
  });
}
// cvt.rn.f16x2.f32 d, a, b: a is the upper half.
void cvt_pair(Warp& w, const Instr& in, u32 mask) {
  Instr one = in;
  one.type = in.type == Type::kF16x2 ? Type::kF16 : Type::kBf16;
  each_lane(mask, [&](int l) {
    w.r32(in.r[0])[l] =
        static_cast<u32>(convert(one, w.r32(in.r[1])[l]) << 16 | convert(one, w.r32(in.r[2])[l]));
  });
}

template <bool kBrain>
void cvt_pair_nearest(Warp& w, const Instr& in, u32 mask) {
  u32* d = w.r32(in.r[0]);
  const auto *a = lanes_of<float>(w, in.r[1]), *b = lanes_of<float>(w, in.r[2]);
  for_lanes(mask, [=](int l) {
    float hi = from_word<float>(a[l]), lo = from_word<float>(b[l]);
    d[l] = kBrain ? bf16_bits(hi) << 16 | bf16_bits(lo) : f16_bits(hi) << 16 | f16_bits(lo);
  });
}

// The frequent ones as vector loops.
Handler fast_cvt(Type to, Type from, uint8_t mode) {
  auto is = [&](Type t, Type f) { return to == t && from == f; };
  if (is(Type::kU64, Type::kU32)) return map1<u64, u32, [](u32 v) -> u64 { return v; }>;
  if (is(Type::kS64, Type::kS32)) return map1<s64, int32_t, [](int32_t v) -> s64 { return v; }>;
  if (is(Type::kU32, Type::kU64))
    return map1<u32, u64, [](u64 v) -> u32 { return static_cast<u32>(v); }>;
  if (mode == kNearest && is(Type::kF32, Type::kS32))
    return map1<float, int32_t, [](int32_t v) { return static_cast<float>(v); }>;
  if (mode == kNearest && is(Type::kF32, Type::kU32))
    return map1<float, u32, [](u32 v) { return static_cast<float>(v); }>;
  if (mode == kNearest && is(Type::kF32, Type::kF16))
    return map1<float, u32, [](u32 v) { return f16_value(v); }>;
  if (mode == kNearest && is(Type::kF32, Type::kBf16))
    return map1<float, u32, [](u32 v) { return bf16_value(v); }>;
  if (mode == kNearest && is(Type::kF16, Type::kF32))
    return map1<u32, float, [](float v) -> u32 { return f16_bits(v); }>;
  if (mode == kNearest && is(Type::kBf16, Type::kF32))
    return map1<u32, float, [](float v) -> u32 { return bf16_bits(v); }>;
  return nullptr;
}

void select_cvt(Builder& b) {
  Instr& in = b.in;
  int r = b.take_one({"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"});
  bool relu = b.take("relu");
  in.ftz = b.take("ftz");
  in.sat = b.take("sat");
  in.mode2 = relu;
  in.type = b.type();
  in.type2 = b.type();
  bool to_float = is_float(in.type), from_float = is_float(in.type2);
  in.mode = static_cast<uint8_t>(r < 0 ? kNearest : r & 3);
  if (r >= 4 && to_float) in.mode |= kIntegral;
  if (from_float && !to_float && r < 4)
    b.fail("a conversion to integer needs .rni, .rzi, .rmi or .rpi");
  if (in.type == Type::kF16x2 || in.type == Type::kBf16x2) {
    in.r[0] = b.target(0, Type::kB32);
    in.r[1] = b.source(1, in.type2);
    in.r[2] = b.source(2, in.type2);
    bool plain = in.mode == kNearest && in.type2 == Type::kF32 && !relu && !in.sat && !in.ftz;
    in.fn = !plain                    ? cvt_pair
            : in.type == Type::kF16x2 ? cvt_pair_nearest<false>
                                      : cvt_pair_nearest<true>;
    return;
  }
  // A narrow integer may sit in a wider register: it is the register's own width that counts.
  in.r[0] = b.target(0, in.type);
  in.r[1] = b.source(1, in.type2);
  in.fn = relu || in.sat || in.ftz ? nullptr : fast_cvt(in.type, in.type2, in.mode);
  if (in.fn == nullptr) in.fn = cvt;
}

// cvta: mode 0 to generic (add the window), 1 from it (subtract); both modulo the window's base.
void cvta(Warp& w, const Instr& in, u32 mask) {
  u64 base = in.space == Space::kShared ? kSharedBase : in.space == Space::kLocal ? kLocalBase : 0;
  each_lane(mask, [&](int l) {
    u64 v = in.size == 8 ? w.r64(in.r[1])[l] : w.r32(in.r[1])[l];
    u64 offset = base && v >= base ? v - base : v;
    u64 r = in.mode ? offset : base + offset;
    if (in.size == 8)
      w.r64(in.r[0])[l] = r;
    else
      w.r32(in.r[0])[l] = static_cast<u32>(r);
  });
}
void select_cvta(Builder& b) {
  b.in.mode = b.take("to");
  b.in.space = b.space();
  Type t = b.type();
  b.in.size = static_cast<u32>(size_of(t));
  b.in.r[0] = b.target(0, t);
  b.in.r[1] = b.source(1, t);
  b.in.fn = cvta;
}
void isspacep(Warp& w, const Instr& in, u32 mask) {
  u32 r = 0;
  each_lane(mask, [&](int l) {
    u64 top = w.r64(in.r[1])[l] >> 48;
    Space s = top == kSharedBase >> 48  ? Space::kShared
              : top == kLocalBase >> 48 ? Space::kLocal
              : top == kParamBase >> 48 ? Space::kParam
                                        : Space::kGlobal;
    if (s == Space::kGlobal) {  // constants live in the same arena
      const Region* r = DeviceMemory::get().find(w.r64(in.r[1])[l]);
      if (r != nullptr && r->read_only) s = Space::kConst;
    }
    r |= u32(s == in.space) << l;
  });
  w.set_predicate(in.r[0], mask, r);
}

}  // namespace

void add_convert_ops(SelectorTable& t) {
  t["mov"] = select_mov;
  t["cvt"] = select_cvt;
  t["cvta"] = select_cvta;
  t["isspacep"] = [](Builder& b) {
    b.in.space = b.space();
    b.in.r[0] = b.predicate(0);
    b.in.r[1] = b.source(1, Type::kU64);
    b.in.fn = isspacep;
  };
}

}  // namespace pf::ptxvm
