#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "base/view.h"

namespace pf::kernels {

// What stands in front of the layers of a pass and behind them, in a launch each; with the bits of
// the kernels that do it one by one.

// residual[t] = embedding[tokens[t]], a row of zeros where tokens[t] < 0 (gather_rows.h); normed[t]
// = that row's norm (rms_norm.h); angles[t] as rope_angles (rope_kv_write.h).
//
// A token >= V is a bug and traps. Requires E % 4 == 0 and 16-byte aligned arrays that do not
// overlap. T == 0 does nothing. Moves T (8 E + 4 D + 8) + 4 E + 2 D bytes: bandwidth-bound, at few
// rows bound by latency.
template <class A>
struct PassStart {
  View<float, 2> residual;           // [T, E]
  View<A, 2> normed;                 // [T, E]
  View<float, 3> angles;             // [T, 2, D / 2]
  View<const A, 2> embedding;        // [V, E]
  View<const int32_t, 1> tokens;     // [T]
  View<const int32_t, 1> positions;  // [T], >= 0
  View<const float, 1> norm;         // [E]
  View<const float, 1> inverse;      // [D / 2]
  float epsilon = 0, rope_factor = 1;
};
template <class A>
void start_pass(const PassStart<A>& p, cudaStream_t stream);

// y[i] = the norm of x[index[i]] (rms_norm.h), of a row of zeros where index[i] < 0.
//
//   y A [R, E], x float [T, E], index int32 [R], w float [E]
//
// Otherwise as above; an index >= T traps. Moves R (6 E + 4) + 4 E bytes.
template <class A>
void norm_picked_rows(View<A, 2> y, View<const float, 2> x, View<const int32_t, 1> index,
                      View<const float, 1> w, float epsilon, cudaStream_t stream);

}  // namespace pf::kernels
