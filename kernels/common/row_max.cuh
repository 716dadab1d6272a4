#pragma once

// The largest logit of a row and the lowest token that has it, found by a block.

#include "kernels/common/block.cuh"
#include "kernels/common/row_select.cuh"

namespace pf::kernels {

struct Best {
  float value;
  int32_t token;
  bool finite;  // of the row: no NaN, no infinity
};

// The best of the threads' own. Every thread calls and gets it.
__device__ inline Best best_of_block(float value, int32_t token) {
  // Larger is better, then the lower token: one integer says both.
  const uint32_t rising = ~falling_key(value);
  const auto all =
      block_max(static_cast<unsigned long long>(rising) << 32 | ~static_cast<uint32_t>(token));
  return {value_of_falling_key(~static_cast<uint32_t>(all >> 32)),
          static_cast<int32_t>(~static_cast<uint32_t>(all)), true};
}

// Over value(t) of t in [0, n).
template <class Value>
__device__ Best find_max(int n, Value value_of) {
  int bad = 0;
  float value = -INFINITY;
  int32_t token = n;
  for (int t = threadIdx.x; t < n; t += blockDim.x) {
    const float v = value_of(t);
    bad |= (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u;
    if (v > value) {
      value = v;
      token = t;
    }
  }
  bad = block_reduce(bad, Max{});
  Best best = best_of_block(value, token);
  best.finite = bad == 0;
  return best;
}

}  // namespace pf::kernels
