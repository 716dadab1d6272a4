// Logic, shifts and bit fields. Semantics: PTX ISA section "Logic and Shift" and the bit operations
// of "Integer Arithmetic".

#include <algorithm>
#include <bit>

#include "ptxvm/integers.h"

namespace pf::ptxvm {
namespace {

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

// The modes with a name (1 f4e ... 6 rc16).
u32 permute(u32 a, u32 b, u32 c, int mode) {
  u64 both = u64(b) << 32 | a;
  auto byte = [&](u32 i) { return static_cast<u32>(both >> (8 * (i & 7)) & 0xff); };
  u32 r = 0, s = c & 3;
  for (u32 i = 0; i < 4; ++i) {
    u32 v = 0;
    switch (mode) {
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
void prmt_by_nibbles(Warp& w, const Instr& in, u32 mask) {
  u32 *d = w.r32(in.r[0]), *a = w.r32(in.r[1]), *b = w.r32(in.r[2]), *c = w.r32(in.r[3]);
  for_lanes(mask, [=](int l) {
    u64 both = u64(b[l]) << 32 | a[l];
    u32 r = 0;
    for (u32 i = 0; i < 4; ++i) {
      u32 n = c[l] >> (4 * i), v = static_cast<u32>(both >> (8 * (n & 7))) & 0xff;
      u32 sign = (v & 0x80) ? 0xffu : 0u;
      r |= ((n & 8) ? sign : v) << (8 * i);
    }
    d[l] = r;
  });
}

template <class T>
constexpr T extracted(T v, u32 pos, u32 len) {
  constexpr u32 kBits = 8 * sizeof(T);
  if (len == 0) return 0;
  if (pos + len > kBits) {  // reaches over the top: the sign, or zeros, from there on
    if (std::is_signed_v<T>) return static_cast<T>(v >> std::min(pos, kBits - 1));
    return pos < kBits ? static_cast<T>(v >> pos) : T(0);
  }
  return static_cast<T>(static_cast<T>(as_unsigned(v) << (kBits - pos - len)) >> (kBits - len));
}
template <class T>
void bit_field_extract(Warp& w, const Instr& in, u32 mask) {
  auto *d = lanes_of<T>(w, in.r[0]), *a = lanes_of<T>(w, in.r[1]);
  u32 *p = w.r32(in.r[2]), *n = w.r32(in.r[3]);
  each_lane(mask, [&](int l) {
    d[l] = to_word<T>(extracted<T>(from_word<T>(a[l]), p[l] & 255, n[l] & 255));
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

void select_lop3(Builder& b) {
  sources(b, b.type(), 3);
  b.in.mode = static_cast<uint8_t>(std::stoul(b.operand(4).number, nullptr, 0));
  b.in.fn = lop3;
}
void select_prmt(Builder& b) {
  Type t = b.type();
  b.in.mode = static_cast<uint8_t>(b.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}) + 1);
  sources(b, t, 3);
  b.in.fn = b.in.mode == 0 ? prmt_by_nibbles : prmt;
}

}  // namespace

void add_bit_ops(SelectorTable& t) {
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
}

}  // namespace pf::ptxvm
