#pragma once
// What the integer and the bit instructions share: F<T>::run for each integer type, and operands.

#include <type_traits>

#include "ptxvm/decode.h"
#include "ptxvm/lanes.h"

namespace pf::ptxvm {

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

// Target (of type `to`, else t) and n sources of type t.
inline void sources(Builder& b, Type t, int n, Type to = Type::kNone) {
  b.in.type = t;
  b.in.r[0] = b.target(0, to == Type::kNone ? t : to);
  for (int i = 1; i <= n; ++i) b.in.r[i] = b.source(static_cast<size_t>(i), t);
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

}  // namespace pf::ptxvm
