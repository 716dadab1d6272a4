#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace pf {

// Both 16-bit types by one name.
template <class A>
A round_to(float v);
template <>
inline f16 round_to<f16>(float v) {
  return to_f16(v);
}
template <>
inline bf16 round_to<bf16>(float v) {
  return to_bf16(v);
}
inline float to_float(float v) { return v; }

template <>
inline float round_to<float>(float v) {
  return v;
}

template <class A>
std::vector<A> round_all(const std::vector<float>& values) {
  std::vector<A> out;
  for (float v : values) out.push_back(round_to<A>(v));
  return out;
}

// Half a unit in the last place, relative to a normal value, and the spacing of subnormals.
template <class A>
inline constexpr double kHalfUlp = 0x1p-11;
template <>
inline constexpr double kHalfUlp<bf16> = 0x1p-8;
template <class A>
inline constexpr double kTiny = 0x1p-25;
template <>
inline constexpr double kTiny<bf16> = 0x1p-133;

// Roughly normal values (a sum of four uniform ones) around 0 with standard deviation `scale`.
inline std::vector<float> normal_values(size_t n, uint32_t seed, float scale = 1) {
  std::vector<float> out(n);
  for (float& v : out) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      seed = seed * 1664525u + 1013904223u;
      sum += static_cast<float>(seed >> 8) * 0x1p-24f - 0.5f;
    }
    v = sum * std::sqrt(3.0f) * scale;
  }
  return out;
}

// `want` is the exact value. NaN must meet NaN; what rounds to infinity in A must be infinite.
template <class A>
void expect_close(A got, double want, double tolerance, const char* what, size_t at) {
  float g = to_float(got), w = to_float(round_to<A>(static_cast<float>(want)));
  if (std::isnan(want) || std::isinf(w)) {
    EXPECT_TRUE(std::isnan(want) ? std::isnan(g) : g == w)
        << what << " " << at << ": " << g << ", not " << want;
  } else {
    EXPECT_LE(std::fabs(g - want), tolerance) << what << " " << at << ": " << g << ", not " << want;
  }
}

}  // namespace pf
