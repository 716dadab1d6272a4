#pragma once

#include <cuda_runtime_api.h>

#include "base/dtype.h"
#include "base/view.h"
#include "kernels/sample_types.h"

namespace pf::kernels {

// From the head's logits to the laws of R rows, the twin of apply_rules, make_distribution,
// draw_coupled and the log-probabilities of src/sampling/distribution.h:
// finite check, penalties (a tree row's path stands in its output), bias, bans of end ids before
// min_new_tokens, temperature, min-p, top-k, top-p in this order, ties at a border by lower token.
//
//   laws          RowLaw [R]
//   top           [R, n]     log-probabilities of each row's n_top <= n likeliest tokens, falling;
//                            n = 0: nobody wants any
//   logits        float [R, V]  raw; after the call what the rules make of them
//   row_sequence  int32 [R]  in [0, B)
//   rules, accept [B]        position and n_generated are those of the sequence's first row
//   trees         of the B sequences; a row is node (row - first_row - 1)
//
// Everything that decides p is rounded as on the host (products never fused); sums are double, in
// an order that depends on V alone, so norm can differ from the host's in its last bit once in
// millions of rows. R == 0 does nothing. Requires 1 <= V <= 2^18, n <= kMaxTop. Moves 4 R V bytes
// of HBM; the passes behind the first (2 without truncation, 5 to 8 more for each of top-k, top-p
// and `top`) stay in the L2. Bound by latency below about 100 rows.
void make_laws(View<RowLaw, 1> laws, View<TokenValue, 2> top, View<float, 2> logits,
               View<const int32_t, 1> row_sequence, View<const SamplingRules, 1> rules,
               View<const AcceptRules, 1> accept, RuleLists lists, DraftTrees trees,
               cudaStream_t stream);

// Log-softmax of known tokens (prompt log-probabilities), and of the likeliest, without any rules.
//
//   logprobs  float [R]      NaN where the row is not finite
//   top       [R, n]         as above, n for every row
//   logits    float [R, V]
//   tokens    int32 [R]      in [0, V)
void score_tokens(View<float, 1> logprobs, View<TokenValue, 2> top, View<const float, 2> logits,
                  View<const int32_t, 1> tokens, cudaStream_t stream);

}  // namespace pf::kernels
