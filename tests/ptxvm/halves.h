#pragma once
// 16-bit floats of the lanes without branches, so that the loops over them become vector code. The
// bits of a half are the low 16 of a word.

#include <bit>
#include <cmath>
#include <cstdint>

namespace pf::ptxvm {

inline float f16_value(uint32_t h) {
  uint32_t rest = (h & 0x7fffu) << 13;
  // As an f32 the exponent is 112 too small; the product also makes subnormals right.
  uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f);
  bits |= (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;  // infinity and NaN keep their exponent
  return std::bit_cast<float>(bits | (h & 0x8000u) << 16);
}
inline float bf16_value(uint32_t h) { return std::bit_cast<float>(h << 16); }

// To nearest even; NaN becomes PTX's canonical one, 0x7fff.
inline uint32_t f16_bits(float v) {
  uint32_t x = std::bit_cast<uint32_t>(v), sign = x >> 16 & 0x8000u;
  x &= 0x7fffffffu;
  uint32_t normal = (x + 0xc8000fffu + (x >> 13 & 1)) >> 13;
  // Below 2^-14 the adder aligns the bits: ulp(0.5) is the least subnormal.
  uint32_t tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(x) + 0.5f) - 0x3f000000u;
  uint32_t r = x < 0x38800000u ? tiny : normal;
  r = x >= 0x47800000u ? 0x7c00u : r;
  return x > 0x7f800000u ? 0x7fffu : r | sign;
}
inline uint32_t bf16_bits(float v) {
  uint32_t x = std::bit_cast<uint32_t>(v);
  uint32_t r = (x + 0x7fffu + (x >> 16 & 1)) >> 16;
  return v != v ? 0x7fffu : r;
}

// a * b + c of 16-bit floats in one rounding: the sum as a double rounded to odd, so that the next
// rounding cannot go wrong (Boldo and Melquiond 2008).
inline double fma_to_odd(double a, double b, double c) {
  double p = a * b, s = p + c;                        // p is exact: 11-bit factors at most
  double t = s - p, error = (p - (s - t)) + (c - t);  // NaN when s is not finite
  uint64_t bits = std::bit_cast<uint64_t>(s);
  bool outward = (error > 0) == (bits >> 63 == 0);
  bool move = (error > 0 || error < 0) && (bits & 1) == 0;
  return std::bit_cast<double>(move ? (outward ? bits + 1 : bits - 1) : bits);
}

// d as an f32 rounded to odd: a second rounding to a half is then the right one.
inline float to_odd(double d) {
  float f = static_cast<float>(d);
  double error = d - static_cast<double>(f);
  uint32_t bits = std::bit_cast<uint32_t>(f);
  bool outward = (error > 0) == (bits >> 31 == 0);
  uint32_t moved = outward ? bits + 1 : bits - 1;
  bool move = (error > 0 || error < 0) && (bits & 1) == 0 && std::fabs(f) <= 0x1.fffffep127f;
  return std::bit_cast<float>(move ? moved : bits);
}

}  // namespace pf::ptxvm
