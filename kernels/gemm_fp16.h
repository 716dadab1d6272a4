#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "base/view.h"
#include "kernels/gemm.h"

namespace pf::kernels {

// y[t,n] = [y[t,n] +] sum_k x[t,k] w[n,k] [+ bias[n]]
//
//   y  Y [T, N]  Y is A or float; rounded once
//   x  A [T, K]  A is f16 or bf16
//   w  A [N, K]  as in the file
//
// Products are exact, sums are float, their order is fixed by K alone: 4 slices of K (each a whole
// number of 64s) are summed upward and then added in order. A row of y has the same bits whatever
// T, its place, its neighbours and the tiling.
//
// Or as another GemmOutput says.
//
// Requires K % 8 == 0 and 16-byte aligned arrays; y overlaps nothing; bias is 16-byte aligned. Any
// N >= 1 (N % 4 == 0 stores in vectors). T == 0 does nothing. Moves 2 N K + 2 T K bytes and y:
// bound by the weights' bytes up to some 200 rows, then by the tensor cores.
template <class A>
void gemm_fp16(const GemmOutput<A>& y, View<const A, 2> x, View<const A, 2> w, cudaStream_t stream,
               GemmTiling tiling = GemmTiling::kAuto);

template <class A, class Y>
void gemm_fp16(View<Y, 2> y, View<const A, 2> x, View<const A, 2> w, GemmEpilogue epilogue,
               cudaStream_t stream, GemmTiling tiling = GemmTiling::kAuto) {
  gemm_fp16(GemmOutput<A>::rows(y, epilogue), x, w, stream, tiling);
}

}  // namespace pf::kernels
