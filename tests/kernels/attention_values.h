#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/half_values.h"

namespace pf::kernels {

// A token by name: the same name has the same query, key and value in every scene, wherever its row
// and its slot lie, so that results of different scenes can be compared by name.
using Token = uint32_t;

// Each element the sum of four uniform deviates (variance 1) out of 64 mixed bits.
template <class T>
std::vector<T> vector_of(Token token, int32_t kind, int32_t head, int32_t D) {
  std::vector<T> out;
  for (uint64_t d = 0; d < static_cast<uint64_t>(D); ++d) {
    uint64_t x = ((uint64_t{token} * 4 + uint64_t(kind)) * 64 + uint64_t(head)) * 256 + d;
    for (uint64_t by : {0xbf58476d1ce4e5b9ull, 0x94d049bb133111ebull}) x = (x ^ x >> 30) * by;
    x ^= x >> 31;
    double sum =
        double(x & 0xffff) + double(x >> 16 & 0xffff) + double(x >> 32 & 0xffff) + double(x >> 48);
    out.push_back(round_to<T>(static_cast<float>((sum / 65536 - 2) * std::sqrt(3.0))));
  }
  return out;
}

// A row in int8, by the definition (kv_plane.h).
struct Int8Row {
  std::vector<int8_t> q;
  float scale;
};
template <class T>
Int8Row int8_of(const std::vector<T>& row) {
  float most = 0;
  for (T x : row) most = std::max(most, std::abs(to_float(x)));
  Int8Row out{{}, most / 127};
  for (T x : row) out.q.push_back(static_cast<int8_t>(std::nearbyint(to_float(x) * (127 / most))));
  return out;
}

}  // namespace pf::kernels
