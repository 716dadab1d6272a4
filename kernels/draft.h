#pragma once

#include <cuda_runtime_api.h>

#include "base/view.h"
#include "kernels/sample_types.h"

namespace pf::kernels {

// The draft's side, the twin of src/sampling/grow.h: list_candidates, then grow_trees, once per
// level, all in device memory, so that K levels of a draft (forward, list, grow, feed back) are one
// CUDA graph. Rows stand at fixed places: the w-th node that is open in sequence b has row
// b * W + w; a place that holds kNoNode is neither read nor drawn.

// The likeliest tokens of each row, before any rule, falling (lower token first among equals).
//
//   candidates  [R, n]        (token, raw logit); n <= kMaxTop
//   n_listed    int32 [R]     min(n, V); 0 where the row is not finite or the place is unused
//   slices      [R, n_slices_of(V), n]  scratch
//   logits      float [R, V]
//   open        int32 [R]     kNoNode: an unused place
//   head_tokens int32 [V]     the token of each logit, rising; empty (null data, 0): the same
//   number
//
// Requires 1 <= V <= 2^18, R <= 65535. Two launches. Moves 4 R V bytes of HBM; the other 6 to 9
// passes stay on the chip. Bound by latency.
void list_candidates(View<TokenValue, 2> candidates, View<int32_t, 1> n_listed,
                     View<TokenValue, 3> slices, View<const float, 2> logits,
                     View<const int32_t, 1> open, View<const int32_t, 1> head_tokens,
                     cudaStream_t stream);

// What a level of one sequence is grown by.
struct GrowRules {
  int32_t n_draft;  // nodes wanted in all
  int32_t coupled;  // 1: rank by log q + gumbel; 0: draw from q without replacement
};

// Adds `width` children (fewer at n_draft nodes, or where q has fewer tokens) to every open node,
// in order, from its candidates: greedy takes the likeliest, coupled those of the largest log q +
// gumbel, both one-hot; else they are drawn from q, and q goes into the tree. q is the candidates
// after penalties, bias, bans, temperature, min-p, top-k, top-p, renormalised.
//
//   trees        [B]          n_nodes and n_entries are 0 before the first level
//   next_open    int32 [B, min(W * width, kMaxNodes)]  the new nodes, then kNoNode
//   next_tokens  the same     their tokens, then -1: what the next forward pass is fed with
//   open         int32 [B, W] kRootNode in the first place for the first level
//   candidates   [B * W, n], n_listed [B * W]: as above
//   rules        [B]          position and n_generated are those of the first level
//   depth        of the new nodes, from 1; max_nodes caps n_draft
//
// Requires q_capacity >= n * max_nodes, max_nodes <= kMaxNodes. One block per sequence; bound by
// latency.
void grow_trees(DraftTrees trees, View<int32_t, 2> next_open, View<int32_t, 2> next_tokens,
                View<const int32_t, 2> open, View<const TokenValue, 2> candidates,
                View<const int32_t, 1> n_listed, View<const SamplingRules, 1> rules,
                View<const GrowRules, 1> grow, RuleLists lists, int width, int depth, int max_nodes,
                cudaStream_t stream);

}  // namespace pf::kernels
