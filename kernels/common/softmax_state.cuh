#pragma once

// A softmax over keys that arrive in pieces (Milakov & Gimelshein 2018): the largest score so far
// (times log2 e, as all scores here), the sum of 2^(score - max) and, per output element, the sum
// of 2^(score - max) v. Every operation is spelt out, so that two kernels that fold the same pieces
// in the same order get the same bits.

#include <cuda_runtime.h>

#include <cmath>

namespace pf::kernels {

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct SoftmaxState {
  float max = -INFINITY, sum = 0;
  // No key yet. (A NaN score is a key: its sum is NaN.)
  __device__ bool empty() const { return max == -INFINITY && sum == 0; }
};

// What two pieces are multiplied by when they become one.
struct FoldWeights {
  float total, part;
  __device__ float operator()(float total_sum, float part_sum) const {
    return __fmaf_rn(part_sum, part, __fmul_rn(total_sum, total));
  }
};

// total = total + part; the caller does the same to its output elements with what is returned.
// Requires: part is not empty.
__device__ inline FoldWeights fold(SoftmaxState& total, const SoftmaxState& part) {
  const float max = fmaxf(total.max, part.max);
  const FoldWeights w{exp2_approx(__fsub_rn(total.max, max)),
                      exp2_approx(__fsub_rn(part.max, max))};
  total.max = max;
  total.sum = w(total.sum, part.sum);
  return w;
}

}  // namespace pf::kernels
