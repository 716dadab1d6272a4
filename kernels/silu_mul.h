#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "base/view.h"

namespace pf::kernels {

// y[t,f] = g / (1 + exp(-g)) * u   with g, u numbers f and F + f of gate_up[t], which is paired:
//                                  unpaired_row(i, F) is the number of element i (gemm.h)
//
//   y        A [T, F]    A is f16 or bf16; computed in float, rounded once
//   gate_up  A [T, 2 F]  the output of the merged gate and up projection; where this backend's own
//                        product makes it, that has silu_mul's bits itself (GemmOutput)
//
// Requires F % 4 == 0 and 16-byte aligned arrays that do not overlap. T == 0 does nothing. Moves
// 6 T F bytes: bandwidth-bound.
template <class A>
void silu_mul(View<A, 2> y, View<const A, 2> gate_up, cudaStream_t stream);

}  // namespace pf::kernels
