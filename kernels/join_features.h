#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"
#include "base/view.h"

namespace pf::kernels {

// What a head over hidden states reads of a token: its embedding beside the hidden state of the
// token before, each normalised.
//
//   y[t] = [ norm(embedding[token[t]], w_embedding) ; norm(states[index[t]], w_state) ]
//
//   y          A [T, 2 E]     A is f16 or bf16; rounded once
//   embedding  A [V, E]
//   tokens     int32 [T]
//   states     S [Vj, E]      up to three tables, taken as one behind the other (Vj may be 0); S is
//                             A or float
//   index      int32 [T]      null data: row t
//   w_*        float [E]      null: no norm, the values as they are
//
// norm is that of rms_norm.h, in its order of summation. A token or index below 0 gives zeros; one
// past its tables traps. Requires E % 4 == 0 and 16-byte aligned arrays; y overlaps nothing. T == 0
// does nothing. Moves T E (6 + sizeof(S)) bytes: bound by latency at the few rows that a head runs.
template <class A, class S>
void join_features(View<A, 2> y, View<const A, 2> embedding, View<const int32_t, 1> tokens,
                   const View<const S, 2> (&states)[3], View<const int32_t, 1> index,
                   const float* w_embedding, const float* w_state, float epsilon,
                   cudaStream_t stream);

}  // namespace pf::kernels
