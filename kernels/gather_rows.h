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

}  // namespace pf::kernels
