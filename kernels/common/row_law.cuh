#pragma once

// What a RowLaw says of one token.

#include "base/fast_math.h"
#include "kernels/sample.h"

namespace pf::kernels {

__device__ inline float law_x(const RowLaw& law, float logit) {
  return mul_rn(sub_rn(logit, law.max), law.scale);
}

__device__ inline bool law_keeps(const RowLaw& law, float x, int32_t token) {
  return x > law.cut_x || (x == law.cut_x && token <= law.cut_token);
}

// p of a token. Requires a temperature above 0.
__device__ inline float law_p(const RowLaw& law, float logit, int32_t token) {
  const float x = law_x(law, logit);
  return law_keeps(law, x, token) ? mul_rn(exp_nonpositive(x), law.norm) : 0.0f;
}

}  // namespace pf::kernels
