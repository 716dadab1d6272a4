#pragma once

#include <cstdint>
#include <vector>

#include "kernels/half_values.h"

namespace pf {

// For comparisons to the bit.
template <class T>
std::vector<uint16_t> bits_of(const std::vector<T>& v) {
  std::vector<uint16_t> out;
  for (T x : v) out.push_back(x.bits);
  return out;
}

// Normal values, rounded to T: what the kernel and the oracle both see.
template <class T>
std::vector<T> random_values(size_t n, uint32_t seed, float deviation = 1) {
  return round_all<T>(normal_values(n, seed, deviation));
}

}  // namespace pf
