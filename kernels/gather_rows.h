#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "base/view.h"

namespace pf::kernels {

// y[i,e] = x[index[i],e], and 0 where index[i] < 0: a padded row reads nothing of x.
//
//   y      To [T, E]      (From, To) is (f16, float) or (bf16, float): the embedding of tokens into
//   x      From [V, E]    the residual stream; or one type twice: float, f16, bf16. Exact.
//   index  int32 [T]
//
// An index >= V is a bug and ends the kernel with a trap (a CUDA error at the next call). Requires
// E % 4 == 0 and 16-byte aligned arrays; y overlaps neither x nor index. T == 0 does nothing. Moves
// T E (sizeof(From) + sizeof(To)) + 4 T bytes: bandwidth-bound.
template <class From, class To>
void gather_rows(View<To, 2> y, View<const From, 2> x, View<const int32_t, 1> index,
                 cudaStream_t stream);

// y[to[i],e] = x[from[i],e]: rows picked from one table and placed in another.
//
//   y         To [Ty, E]    To is From (f16, bf16 or float): exact; or f16 or bf16 from float,
//   x         From [Tx, E]  rounded once
//   from, to  int32 [n]     no row of y twice. Rows of y that `to` does not name stay as they are,
//                           and so does to[i] where from[i] < 0
//
// An index past its table is a bug and traps. Otherwise as above; n == 0 does nothing. Moves
// n E (sizeof(From) + sizeof(To)) + 8 n bytes: bandwidth-bound, at few rows bound by latency.
template <class From, class To>
void copy_rows(View<To, 2> y, View<const From, 2> x, View<const int32_t, 1> from,
               View<const int32_t, 1> to, cudaStream_t stream);

// y[i,e] = row index[i] of the tables x[0], x[1], x[2], taken as one behind the other; 0 where
// index[i] < 0. Otherwise as gather_rows of one type (f16, bf16). x[j] is [Vj, E]; Vj may be 0.
template <class A>
void gather_joined(View<A, 2> y, const View<const A, 2> (&x)[3], View<const int32_t, 1> index,
                   cudaStream_t stream);

}  // namespace pf::kernels
