#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/dtype.h"
#include "base/view.h"
#include "kernels/gemm.h"
#include "kernels/pack_int4.h"

namespace pf::kernels {

// On the device: what pack_int4_for_mma wrote.
struct Int4Matrix {
  const std::byte* data = nullptr;
  Int4Shape shape;
};

// y[t,n] = [y[t,n] +] sum over the groups of n of
//            d sum_k x[t,k] (q[n,k] - 8)                    without minimums
//            d sum_k x[t,k] q[n,k]  +  m sum_k x[t,k]       with minimums
//          [+ bias[n]]
//
//   y  Y [T, N]  Y is A or float; rounded once
//   x  A [T, K]  A is f16 or bf16
//   w  4-bit [N, K], groups of 32 or 128 along k
//
// q is exact in A, so no weight is ever rounded; products are exact, sums and the scaling are
// float. The scale is applied per 32 k whatever the group. The order is fixed by K alone, as in
// gemm_fp16 with 8 slices instead of 4: a row of y has the same bits whatever T, its place, its
// neighbours and the tiling. Infinity in x becomes NaN where this formula says so (infinity times q
// = 0).
//
// Or as another GemmOutput says.
//
// Requires K a multiple of the group, 16-byte aligned arrays, y overlapping nothing. Any N >= 1
// (N % 4 == 0 stores in vectors). T == 0 does nothing. Moves N K / 2 + N K / group * (2 or 4) bytes
// of weights, 2 T K of x, and y: bound by the weights' bytes up to some 50 rows, then by the tensor
// cores.
template <class A>
void gemm_int4(const GemmOutput<A>& y, View<const A, 2> x, const Int4Matrix& w, cudaStream_t stream,
               GemmTiling tiling = GemmTiling::kAuto);

template <class A, class Y>
void gemm_int4(View<Y, 2> y, View<const A, 2> x, const Int4Matrix& w, GemmEpilogue epilogue,
               cudaStream_t stream, GemmTiling tiling = GemmTiling::kAuto) {
  gemm_int4(GemmOutput<A>::rows(y, epilogue), x, w, stream, tiling);
}

}  // namespace pf::kernels
