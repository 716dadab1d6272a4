#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/view.h"

namespace pf::kernels {

// y[t,e] = y[t,e] + ((p[0,t,e] + p[1,t,e]) + p[2,t,e] + ...): the shares that n devices have of a
// sum, added in their order, so that every device comes to the same bits.
//
//   y         float [T, E]
//   partials  float [n, T, E]  n >= 1
//
// Requires E % 4 == 0 and 16-byte aligned arrays that do not overlap. T == 0 does nothing. Moves
// 4 (n + 2) T E bytes: bandwidth-bound, at few rows bound by latency.
void add_partials(View<float, 2> y, View<const float, 3> partials, cudaStream_t stream);

}  // namespace pf::kernels
