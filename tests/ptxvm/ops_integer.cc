// Integer arithmetic. Semantics: PTX ISA sections "Integer Arithmetic" and "Extended-Precision".

#include <algorithm>
#include <limits>

#include "ptxvm/integers.h"

namespace pf::ptxvm {
namespace {

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
  t["dp4a"] = [](Builder& b) { select_dot(b, true); };
  t["dp2a"] = [](Builder& b) { select_dot(b, false); };
}

}  // namespace pf::ptxvm
