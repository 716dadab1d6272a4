// Integer arithmetic, logic and shifts. Semantics: PTX ISA
// sections "Integer Arithmetic", "Extended-Precision", "Logic and Shift".

#include <algorithm>
#include <bit>
#include <limits>

#include "ptxvm/decode.h"
#include "ptxvm/lanes.h"

namespace pf::ptxvm {
namespace {

template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, s64, u64>,
                       std::conditional_t<std::is_signed_v<T>, s32, u32>>>;
template <class T>
constexpr auto as_unsigned(T v) {
  return static_cast<std::make_unsigned_t<T>>(v);
}

// F<T> for the integer type t.
template <template <class> class F>
Handler by_integer(Builder& b, Type t) {
  switch (t) {
    case Type::kU16:
    case Type::kB16:
      return F<u16>::run;
    case Type::kS16:
      return F<s16>::run;
    case Type::kU32:
    case Type::kB32:
      return F<u32>::run;
    case Type::kS32:
      return F<s32>::run;
    case Type::kU64:
    case Type::kB64:
      return F<u64>::run;
    case Type::kS64:
      return F<s64>::run;
    default:
      b.fail("unsupported type");
  }
}

template <class T>
struct Add {
  static constexpr auto run =
      map2<T, T, T, [](T a, T b) -> T { return static_cast<T>(as_unsigned(a) + as_unsigned(b)); }>;
};
template <class T>
struct Sub {
  static constexpr auto run =
      map2<T, T, T, [](T a, T b) -> T { return static_cast<T>(as_unsigned(a) - as_unsigned(b)); }>;
};
template <class T>
constexpr T clamp_to(Wide<T> v) {
  return static_cast<T>(
      std::clamp<Wide<T>>(v, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}
template <class T>
struct AddSat {
  static constexpr auto run =
      map2<T, T, T, [](T a, T b) -> T { return clamp_to<T>(Wide<T>(a) + b); }>;
};
template <class T>
struct SubSat {
  static constexpr auto run =
      map2<T, T, T, [](T a, T b) -> T { return clamp_to<T>(Wide<T>(a) - b); }>;
};
template <class T>
struct MulLo {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T {
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
  }>;
};
template <class T>
constexpr T high(T a, T b) {
  return static_cast<T>((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
}
template <>
constexpr u16 high<u16>(u16 a, u16 b) {
  return static_cast<u16>((u32(a) * u32(b)) >> 16);
}
template <class T>
struct MulHi {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T { return high<T>(a, b); }>;
};
template <class T>
struct MadLo {
  static constexpr auto run = map3<T, T, T, T, [](T a, T b, T c) -> T {
    return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b) + static_cast<u64>(c));
  }>;
};
template <class T>
struct MadHi {
  static constexpr auto run = map3<T, T, T, T, [](T a, T b, T c) -> T {
    return static_cast<T>(as_unsigned(high<T>(a, b)) + as_unsigned(c));
  }>;
};
// Division by zero is unspecified on the device; all ones here, as its software division gives.
template <class T>
struct Div {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T {
    return b == 0                                             ? static_cast<T>(-1)
           : (std::is_signed_v<T> && b == static_cast<T>(-1)) ? static_cast<T>(0 - as_unsigned(a))
                                                              : static_cast<T>(a / b);
  }>;
};
template <class T>
struct Rem {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T {
    return b == 0                                             ? a
           : (std::is_signed_v<T> && b == static_cast<T>(-1)) ? T(0)
                                                              : static_cast<T>(a % b);
  }>;
};
template <class T>
struct Min {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T { return std::min(a, b); }>;
};
template <class T>
struct Max {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T { return std::max(a, b); }>;
};
template <class T>
struct Neg {
  static constexpr auto run =
      map1<T, T, [](T a) -> T { return static_cast<T>(0 - as_unsigned(a)); }>;
};
template <class T>
struct Abs {
  static constexpr auto run =
      map1<T, T, [](T a) -> T { return a < 0 ? static_cast<T>(0 - as_unsigned(a)) : a; }>;
};
template <class T>
struct Sad {
  static constexpr auto run = map3<T, T, T, T, [](T a, T b, T c) -> T {
    return static_cast<T>(as_unsigned(c) + (a < b ? as_unsigned(b) - as_unsigned(a)
                                                  : as_unsigned(a) - as_unsigned(b)));
  }>;
};
template <class T>
struct And {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T { return static_cast<T>(a & b); }>;
};
template <class T>
struct Or {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T { return static_cast<T>(a | b); }>;
};
template <class T>
struct Xor {
  static constexpr auto run = map2<T, T, T, [](T a, T b) -> T { return static_cast<T>(a ^ b); }>;
};
template <class T>
struct Not {
  static constexpr auto run = map1<T, T, [](T a) -> T { return static_cast<T>(~a); }>;
};
template <class T>
struct Cnot {
  static constexpr auto run = map1<T, T, [](T a) -> T { return T(a == 0); }>;
};
// Amounts past the width clamp: shl gives 0, an arithmetic shr the sign.
template <class T>
struct Shl {
  static constexpr auto run = map2<T, T, u32, [](T a, u32 n) -> T {
    return n >= 8 * sizeof(T) ? T(0) : static_cast<T>(as_unsigned(a) << n);
  }>;
};
template <class T>
struct Shr {
  static constexpr auto run = map2<T, T, u32, [](T a, u32 n) -> T {
    constexpr u32 bits = 8 * sizeof(T);
    return n < bits              ? static_cast<T>(a >> n)
           : std::is_signed_v<T> ? static_cast<T>(a >> (bits - 1))
                                 : T(0);
  }>;
};

template <class T>
struct MulWide {
  static constexpr auto run =
      map2<Wide<T>, T, T, [](T a, T b) -> Wide<T> { return Wide<T>(a) * Wide<T>(b); }>;
};
template <class T>
struct MadWide {
  static constexpr auto run = map3<Wide<T>, T, T, Wide<T>, [](T a, T b, Wide<T> c) -> Wide<T> {
    return static_cast<Wide<T>>(as_unsigned(Wide<T>(a) * Wide<T>(b)) + as_unsigned(c));
  }>;
};

// Carry chains. mode bit 0: take the carry in; bit 1: leave the carry out. mode2: 0 add, 1 sub, 2
// mad.lo, 3 mad.hi.
template <class T>
void chain(Warp& w, const Instr& in, u32 mask) {
  auto *d = lanes_of<T>(w, in.r[0]), *a = lanes_of<T>(w, in.r[1]), *b = lanes_of<T>(w, in.r[2]),
       *c = lanes_of<T>(w, in.r[3]);
  u32 out = w.carry;
  each_lane(mask, [&](int l) {
    using W = unsigned __int128;
    W in_carry = in.mode & 1 ? w.carry >> l & 1 : 0, left = a[l], right = b[l];
    if (in.mode2 >= 2) {
      W product = W(a[l]) * b[l];
      left = static_cast<T>(in.mode2 == 2 ? product : product >> (8 * sizeof(T)));
      if (in.type == Type::kS32 || in.type == Type::kS64)
        left = static_cast<T>(in.mode2 == 2 ? left
                                            : static_cast<W>(high<std::make_signed_t<T>>(
                                                  static_cast<std::make_signed_t<T>>(a[l]),
                                                  static_cast<std::make_signed_t<T>>(b[l]))));
      right = c[l];
    }
    W sum = in.mode2 == 1 ? left - right - in_carry : left + right + in_carry;
    d[l] = static_cast<T>(sum);
    u32 carry = static_cast<u32>(sum >> (8 * sizeof(T))) & 1;
    out = (out & ~(1u << l)) | carry << l;
  });
  if (in.mode & 2) w.carry = out;
}

// Target (of type `to`, else t) and n sources of type t.
void sources(Builder& b, Type t, int n, Type to = Type::kNone) {
  b.in.type = t;
  b.in.r[0] = b.target(0, to == Type::kNone ? t : to);
  for (int i = 1; i <= n; ++i) b.in.r[i] = b.source(static_cast<size_t>(i), t);
}

Handler chain_of(Type t) { return size_of(t) == 8 ? chain<u64> : chain<u32>; }

void select_add_sub(Builder& b, bool subtract, bool carry_in) {
  bool cc = b.take("cc"), sat = b.take("sat");
  Type t = b.type();
  if (is_float(t)) {
    if (sat) b.in.sat = true;
    select_float(b, subtract ? "sub" : "add", t);
    return;
  }
  sources(b, t, 2);
  if (cc || carry_in) {
    b.in.mode = static_cast<uint8_t>(carry_in + 2 * cc);
    b.in.mode2 = subtract;
    b.in.fn = chain_of(t);
  } else if (sat) {
    if (t != Type::kS32) b.fail(".sat needs .s32");
    b.in.fn = subtract ? SubSat<s32>::run : AddSat<s32>::run;
  } else {
    b.in.fn = subtract ? by_integer<Sub>(b, t) : by_integer<Add>(b, t);
  }
}

Type widened(Type t) {
  switch (t) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    default:
      return Type::kS64;
  }
}
template <template <class> class F>
Handler by_narrow(Builder& b, Type t) {
  switch (t) {
    case Type::kU16:
      return F<u16>::run;
    case Type::kS16:
      return F<s16>::run;
    case Type::kU32:
      return F<u32>::run;
    case Type::kS32:
      return F<s32>::run;
    default:
      b.fail("unsupported type of .wide");
  }
}

void select_mul(Builder& b) {
  int form = b.take_one({"lo", "hi", "wide"});
  Type t = b.type();
  if (is_float(t)) {
    select_float(b, "mul", t);
    return;
  }
  sources(b, t, 2, form == 2 ? widened(t) : t);
  if (form == 2) {
    b.in.fn = by_narrow<MulWide>(b, t);
  } else {
    b.in.fn = form == 1 ? by_integer<MulHi>(b, t) : by_integer<MulLo>(b, t);
  }
}

void select_mad(Builder& b, bool carry_in) {
  int form = b.take_one({"lo", "hi", "wide"});
  bool cc = b.take("cc");
  Type t = b.type();
  if (is_float(t)) {
    select_float(b, "fma", t);
    return;
  }
  sources(b, t, form == 2 ? 2 : 3, form == 2 ? widened(t) : t);
  if (form == 2) {
    b.in.r[3] = b.source(3, widened(t));
    b.in.fn = by_narrow<MadWide>(b, t);
  } else if (cc || carry_in) {
    b.in.mode = static_cast<uint8_t>(carry_in + 2 * cc);
    b.in.mode2 = static_cast<uint8_t>(2 + (form == 1));
    b.in.fn = chain_of(t);
  } else {
    b.in.fn = form == 1 ? by_integer<MadHi>(b, t) : by_integer<MadLo>(b, t);
  }
}

template <template <class> class F>
void select_binary(Builder& b, const char* float_op) {
  Type t = b.type();
  if (is_float(t)) {
    if (float_op == nullptr) b.fail("unsupported type");
    select_float(b, float_op, t);
    return;
  }
  sources(b, t, 2);
  b.in.fn = by_integer<F>(b, t);
}
template <template <class> class F>
void select_unary(Builder& b, const char* float_op) {
  Type t = b.type();
  if (is_float(t)) {
    if (float_op == nullptr) b.fail("unsupported type");
    select_float(b, float_op, t);
    return;
  }
  sources(b, t, 1);
  b.in.fn = by_integer<F>(b, t);
}

// and, or, xor, not: registers or predicates.
template <int kOp>
void predicate_logic(Warp& w, const Instr& in, u32 mask) {
  u32 a = w.predicate(in.r[1]), b = kOp == 3 ? 0 : w.predicate(in.r[2]);
  w.set_predicate(in.r[0], mask, kOp == 0 ? a & b : kOp == 1 ? a | b : kOp == 2 ? a ^ b : ~a);
}
template <template <class> class F, int kOp>
void select_logic(Builder& b) {
  Type t = b.type();
  if (t == Type::kPred) {
    for (size_t i = 0; i < (kOp == 3 ? 2u : 3u); ++i) b.in.r[i] = b.predicate(i);
    b.in.fn = predicate_logic<kOp>;
    return;
  }
  sources(b, t, kOp == 3 ? 1 : 2);
  b.in.fn = by_integer<F>(b, t);
}

template <template <class> class F>
void select_shift(Builder& b) {
  Type t = b.type();
  sources(b, t, 1);
  b.in.r[2] = b.source(2, Type::kU32);
  b.in.fn = by_integer<F>(b, t);
}

template <int kMode>  // bit 0: left; bit 1: wrap
constexpr auto kFunnel = [](u32 a, u32 b, u32 c) -> u32 {
  u32 n = kMode & 2 ? c & 31 : std::min(c, 32u);
  u64 both = u64(b) << 32 | a;
  return static_cast<u32>(kMode & 1 ? (both << n) >> 32 : both >> n);
};
void select_shf(Builder& b) {
  int mode = (b.take_one({"l", "r"}) == 0) + 2 * (b.take_one({"clamp", "wrap"}) == 1);
  sources(b, b.type(), 3);
  const Handler kTable[] = {
      map3<u32, u32, u32, u32, kFunnel<0>>, map3<u32, u32, u32, u32, kFunnel<1>>,
      map3<u32, u32, u32, u32, kFunnel<2>>, map3<u32, u32, u32, u32, kFunnel<3>>};
  b.in.fn = kTable[mode];
}

void lop3(Warp& w, const Instr& in, u32 mask) {
  u32 *d = w.r32(in.r[0]), *a = w.r32(in.r[1]), *b = w.r32(in.r[2]), *c = w.r32(in.r[3]);
  u32 table[8];
  for (u32 i = 0; i < 8; ++i) table[i] = in.mode >> i & 1 ? ~0u : 0;
  for_lanes(mask, [=](int l) {
    u32 x = a[l], y = b[l], z = c[l], r = 0;
    for (u32 i = 0; i < 8; ++i)
      r |= table[i] & (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
    d[l] = r;
  });
}

u32 permute(u32 a, u32 b, u32 c, int mode) {
  u64 both = u64(b) << 32 | a;
  auto byte = [&](u32 i) { return static_cast<u32>(both >> (8 * (i & 7)) & 0xff); };
  u32 r = 0, s = c & 3;
  for (u32 i = 0; i < 4; ++i) {
    u32 v = 0;
    switch (mode) {
      case 0: {
        u32 n = c >> (4 * i) & 15;
        v = byte(n);
        if (n & 8) v = v & 0x80 ? 0xff : 0;
        break;
      }
      case 1:
        v = byte(s + i);
        break;  // f4e
      case 2:
        v = byte((s - i) & 7);
        break;  // b4e
      case 3:
        v = byte(s);
        break;  // rc8
      case 4:
        v = byte(std::max(i, s));
        break;  // ecl
      case 5:
        v = byte(std::min(i, s));
        break;  // ecr
      default:
        v = byte((s & 1) * 2 + (i & 1));
        break;  // rc16
    }
    r |= v << (8 * i);
  }
  return r;
}
void prmt(Warp& w, const Instr& in, u32 mask) {
  u32 *d = w.r32(in.r[0]), *a = w.r32(in.r[1]), *b = w.r32(in.r[2]), *c = w.r32(in.r[3]);
  each_lane(mask, [&](int l) { d[l] = permute(a[l], b[l], c[l], in.mode); });
}

template <class T>
void bit_field_extract(Warp& w, const Instr& in, u32 mask) {
  auto *d = lanes_of<T>(w, in.r[0]), *a = lanes_of<T>(w, in.r[1]);
  u32 *p = w.r32(in.r[2]), *n = w.r32(in.r[3]);
  constexpr u32 kBits = 8 * sizeof(T);
  each_lane(mask, [&](int l) {
    u32 pos = p[l] & 255, len = n[l] & 255;
    T v = static_cast<T>(a[l]);
    bool sign = std::is_signed_v<T> && len && (v >> std::min(pos + len - 1, kBits - 1) & 1);
    auto out = as_unsigned(T(sign ? -1 : 0));
    for (u32 i = 0; i < std::min(len, kBits); ++i) {
      auto bit = decltype(out)(1) << i;
      bool set = pos + i < kBits ? as_unsigned(v) >> (pos + i) & 1 : sign;
      out = set ? out | bit : out & ~bit;
    }
    d[l] = out;
  });
}
template <class T>
void bit_field_insert(Warp& w, const Instr& in, u32 mask) {
  auto *d = lanes_of<T>(w, in.r[0]), *a = lanes_of<T>(w, in.r[1]), *b = lanes_of<T>(w, in.r[2]);
  u32 *p = w.r32(in.r[3]), *n = w.r32(in.r[4]);
  each_lane(mask, [&](int l) {
    u32 pos = p[l] & 255, len = n[l] & 255;
    T field = len >= 8 * sizeof(T) ? ~T(0) : (T(1) << len) - 1;
    d[l] = pos >= 8 * sizeof(T) ? b[l] : (b[l] & ~(field << pos)) | (a[l] & field) << pos;
  });
}
void select_bfe(Builder& b) {
  Type t = b.type();
  sources(b, t, 1);
  b.in.r[2] = b.source(2, Type::kU32);
  b.in.r[3] = b.source(3, Type::kU32);
  b.in.fn = t == Type::kS32   ? bit_field_extract<s32>
            : t == Type::kU32 ? bit_field_extract<u32>
            : t == Type::kS64 ? bit_field_extract<s64>
                              : bit_field_extract<u64>;
}
void select_bfi(Builder& b) {
  Type t = b.type();
  sources(b, t, 2);
  b.in.r[3] = b.source(3, Type::kU32);
  b.in.r[4] = b.source(4, Type::kU32);
  b.in.fn = size_of(t) == 8 ? bit_field_insert<u64> : bit_field_insert<u32>;
}

template <auto F32, auto F64>
void select_count(Builder& b) {
  Type t = b.type();
  bool wide = size_of(t) == 8;
  b.in.r[0] = b.target(0, Type::kU32);
  b.in.r[1] = b.source(1, t);
  b.in.fn = wide ? map1<u32, u64, F64> : map1<u32, u32, F32>;
}
// Position of the highest bit that differs from the sign; all ones when there is none.
template <class T>
constexpr u32 find_top(T v, bool shift_amount) {
  auto u = as_unsigned(v < 0 ? static_cast<T>(~v) : v);
  if (u == 0) return ~0u;
  u32 pos = static_cast<u32>(std::bit_width(u)) - 1;
  return shift_amount ? 8 * sizeof(T) - 1 - pos : pos;
}
template <class T>
struct Bfind {
  static constexpr auto run = map1<u32, T, [](T v) -> u32 { return find_top(v, false); }>;
};
template <class T>
struct BfindShift {
  static constexpr auto run = map1<u32, T, [](T v) -> u32 { return find_top(v, true); }>;
};
void select_bfind(Builder& b) {
  bool shift = b.take("shiftamt");
  Type t = b.type();
  b.in.r[0] = b.target(0, Type::kU32);
  b.in.r[1] = b.source(1, t);
  b.in.fn = shift ? by_integer<BfindShift>(b, t) : by_integer<Bfind>(b, t);
}
constexpr u32 reverse(u32 v) {
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= (v >> i & 1) << (31 - i);
  return r;
}
void select_brev(Builder& b) {
  Type t = b.type();
  sources(b, t, 1);
  b.in.fn =
      size_of(t) == 8
          ? map1<u64, u64,
                 [](u64 v) -> u64 { return u64(reverse(u32(v))) << 32 | reverse(u32(v >> 32)); }>
          : map1<u32, u32, [](u32 v) -> u32 { return reverse(v); }>;
}

// dp4a, dp2a. mode bit 0: a signed, bit 1: b signed; mode2: 0 dp4a, 1 dp2a.lo, 2 dp2a.hi.
void dot_product(Warp& w, const Instr& in, u32 mask) {
  u32 *d = w.r32(in.r[0]), *a = w.r32(in.r[1]), *b = w.r32(in.r[2]), *c = w.r32(in.r[3]);
  auto byte = [](u32 v, int i, bool sign) {
    u32 x = v >> (8 * i) & 255;
    return sign ? static_cast<s32>(static_cast<int8_t>(x)) : static_cast<s32>(x);
  };
  auto half = [](u32 v, int i, bool sign) {
    u32 x = v >> (16 * i) & 0xffff;
    return sign ? static_cast<s32>(static_cast<s16>(x)) : static_cast<s32>(x);
  };
  each_lane(mask, [&](int l) {
    u32 sum = c[l];
    if (in.mode2 == 0)
      for (int i = 0; i < 4; ++i)
        sum += static_cast<u32>(byte(a[l], i, in.mode & 1) * byte(b[l], i, in.mode & 2));
    else
      for (int i = 0; i < 2; ++i)
        sum += static_cast<u32>(half(a[l], i, in.mode & 1) *
                                byte(b[l], i + 2 * (in.mode2 - 1), in.mode & 2));
    d[l] = sum;
  });
}
void select_dot(Builder& b, bool four) {
  b.in.mode2 = four ? 0 : static_cast<uint8_t>(b.take_one({"lo", "hi"}) + 1);
  Type ta = b.type(), tb = b.type();
  b.in.mode = static_cast<uint8_t>((ta == Type::kS32) + 2 * (tb == Type::kS32));
  sources(b, Type::kB32, 3);
  b.in.fn = dot_product;
}

void select_lop3(Builder& b) {
  sources(b, b.type(), 3);
  b.in.mode = static_cast<uint8_t>(std::stoul(b.operand(4).number, nullptr, 0));
  b.in.fn = lop3;
}
void select_prmt(Builder& b) {
  Type t = b.type();
  b.in.mode = static_cast<uint8_t>(b.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}) + 1);
  sources(b, t, 3);
  b.in.fn = prmt;
}

}  // namespace

void add_integer_ops(SelectorTable& t) {
  t["add"] = [](Builder& b) { select_add_sub(b, false, false); };
  t["sub"] = [](Builder& b) { select_add_sub(b, true, false); };
  t["addc"] = [](Builder& b) { select_add_sub(b, false, true); };
  t["subc"] = [](Builder& b) { select_add_sub(b, true, true); };
  t["mul"] = select_mul;
  t["mad"] = [](Builder& b) { select_mad(b, false); };
  t["madc"] = [](Builder& b) { select_mad(b, true); };
  t["div"] = [](Builder& b) { select_binary<Div>(b, "div"); };
  t["rem"] = [](Builder& b) { select_binary<Rem>(b, nullptr); };
  t["min"] = [](Builder& b) { select_binary<Min>(b, "min"); };
  t["max"] = [](Builder& b) { select_binary<Max>(b, "max"); };
  t["neg"] = [](Builder& b) { select_unary<Neg>(b, "neg"); };
  t["abs"] = [](Builder& b) { select_unary<Abs>(b, "abs"); };
  t["sad"] = [](Builder& b) {
    Type y = b.type();
    sources(b, y, 3);
    b.in.fn = by_integer<Sad>(b, y);
  };
  t["and"] = select_logic<And, 0>;
  t["or"] = select_logic<Or, 1>;
  t["xor"] = select_logic<Xor, 2>;
  t["not"] = select_logic<Not, 3>;
  t["cnot"] = [](Builder& b) { select_unary<Cnot>(b, nullptr); };
  t["shl"] = select_shift<Shl>;
  t["shr"] = select_shift<Shr>;
  t["shf"] = select_shf;
  t["lop3"] = select_lop3;
  t["prmt"] = select_prmt;
  t["bfe"] = select_bfe;
  t["bfi"] = select_bfi;
  t["popc"] = select_count<[](u32 v) -> u32 { return static_cast<u32>(std::popcount(v)); },
                           [](u64 v) -> u32 { return static_cast<u32>(std::popcount(v)); }>;
  t["clz"] = select_count<[](u32 v) -> u32 { return static_cast<u32>(std::countl_zero(v)); },
                          [](u64 v) -> u32 { return static_cast<u32>(std::countl_zero(v)); }>;
  t["bfind"] = select_bfind;
  t["brev"] = select_brev;
  t["dp4a"] = [](Builder& b) { select_dot(b, true); };
  t["dp2a"] = [](Builder& b) { select_dot(b, false); };
}

}  // namespace pf::ptxvm
