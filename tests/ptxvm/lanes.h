#pragma once
// Loops over the 32 lanes of a warp, shared by the handlers. A register of up to 32 bits holds its
// value zero-extended in a uint32_t per lane, a 64-bit one in a uint64_t. With every lane active
// the loop has no branch and the compiler turns it into vector code.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "ptxvm/machine.h"

namespace pf::ptxvm {

// The integer types by their names in PTX.
using u16 = uint16_t;
using s16 = int16_t;
using u32 = uint32_t;
using s32 = int32_t;
using u64 = uint64_t;
using s64 = int64_t;

template <class T>
using Word = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
Word<T>* lanes_of(Warp& w, uint32_t reg) {
  return reinterpret_cast<Word<T>*>(&w.words[reg]);
}
template <class T>
T from_word(Word<T> v) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<T>(v);
  else
    return static_cast<T>(v);
}
template <class T>
Word<T> to_word(T v) {
  if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<Word<T>>(v);
  else
    return static_cast<Word<T>>(static_cast<std::make_unsigned_t<T>>(v));
}

template <class F>
inline void for_lanes(uint32_t mask, F f) {
  if (mask == ~0u) {
#pragma GCC ivdep
    for (int l = 0; l < 32; ++l) f(l);
  } else {
    each_lane(mask, f);
  }
}

// d = F(a), d = F(a, b), d = F(a, b, c); the result has type D.
template <class D, class A, auto F>
void map1(Warp& w, const Instr& in, uint32_t mask) {
  auto* d = lanes_of<D>(w, in.r[0]);
  const auto* a = lanes_of<A>(w, in.r[1]);
  for_lanes(mask, [=](int l) { d[l] = to_word<D>(F(from_word<A>(a[l]))); });
}
template <class D, class A, class B, auto F>
void map2(Warp& w, const Instr& in, uint32_t mask) {
  auto* d = lanes_of<D>(w, in.r[0]);
  const auto* a = lanes_of<A>(w, in.r[1]);
  const auto* b = lanes_of<B>(w, in.r[2]);
  for_lanes(mask, [=](int l) { d[l] = to_word<D>(F(from_word<A>(a[l]), from_word<B>(b[l]))); });
}
template <class D, class A, class B, class C, auto F>
void map3(Warp& w, const Instr& in, uint32_t mask) {
  auto* d = lanes_of<D>(w, in.r[0]);
  const auto* a = lanes_of<A>(w, in.r[1]);
  const auto* b = lanes_of<B>(w, in.r[2]);
  const auto* c = lanes_of<C>(w, in.r[3]);
  for_lanes(mask, [=](int l) {
    d[l] = to_word<D>(F(from_word<A>(a[l]), from_word<B>(b[l]), from_word<C>(c[l])));
  });
}

}  // namespace pf::ptxvm
