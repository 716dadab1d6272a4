#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "base/view.h"

namespace pf::kernels {

// y[t,e] = x[t,e] * w[e] / sqrt(mean_e(x[t,e]^2) + epsilon)
//
//   y  A [T, E]      A is f16 or bf16; rounded once
//   x  float [T, E]  the residual stream
//   w  float [E]
//
// Sums in float, in an order that depends on E alone. Requires E % 4 == 0 and 16-byte aligned
// arrays that do not overlap. T == 0 does nothing. Moves 6 T E + 4 E bytes: bandwidth-bound, at few
// rows bound by latency.
template <class A>
void rms_norm(View<A, 2> y, View<const float, 2> x, View<const float, 1> w, float epsilon,
              cudaStream_t stream);

}  // namespace pf::kernels
