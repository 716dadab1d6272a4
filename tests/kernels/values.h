#pragma once

#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "base/dtype.h"

namespace pf {

template <class T>
T round_to(float v) {
  if constexpr (std::is_same_v<T, f16>) return to_f16(v);
  if constexpr (std::is_same_v<T, bf16>) return to_bf16(v);
  if constexpr (std::is_same_v<T, float>) return v;
}
inline float as_float(float v) { return v; }
inline float as_float(f16 v) { return to_float(v); }
inline float as_float(bf16 v) { return to_float(v); }

// Normal deviates, rounded to T: what the kernel and the oracle both see.
template <class T>
std::vector<T> random_values(size_t n, uint32_t seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<T> out(n);
  for (T& v : out) v = round_to<T>(normal(random));
  return out;
}

template <class T>
std::vector<uint16_t> bits_of(const std::vector<T>& v) {
  std::vector<uint16_t> out;
  for (T x : v) out.push_back(x.bits);
  return out;
}

}  // namespace pf
