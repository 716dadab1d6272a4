#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "base/view.h"

namespace pf::kernels {

// y[t,e] = x[t,e] + v / (1 + exp(-v))   with v = product[t,e]
//
//   y, x     A [T, E]      A is f16 or bf16; computed in float, rounded once; y may be x
//   product  float [T, E]  what stands in the SiLU: W x + b of a residual block
//
// Requires E % 4 == 0 and 16-byte aligned arrays; product overlaps neither. T == 0 does nothing.
// Moves 8 T E bytes: bound by latency at the few rows that a draft has.
template <class A>
void residual_silu(View<A, 2> y, View<const A, 2> x, View<const float, 2> product,
                   cudaStream_t stream);

}  // namespace pf::kernels
