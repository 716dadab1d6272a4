#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "base/view.h"

namespace pf::kernels {

// y[t,f] = g / (1 + exp(-g)) * u   with g = gate_up[t,f], u = gate_up[t,F+f]
//
//   y        A [T, F]    A is f16 or bf16; computed in float, rounded once
//   gate_up  A [T, 2 F]  the output of the merged gate and up projection
//
// Requires F % 8 == 0 and 16-byte aligned arrays that do not overlap. T == 0 does nothing. Moves
// 6 T F bytes: bandwidth-bound.
template <class A>
void silu_mul(View<A, 2> y, View<const A, 2> gate_up, cudaStream_t stream);

}  // namespace pf::kernels
