#pragma once

#include <span>

#include "sampling/distribution.h"
#include "sampling/draft_tree.h"

namespace pf {

// Where a draft grows: one node and the rules of the position behind it.
struct GrowthPoint {
  int32_t node = DraftTree::kRoot;
  int64_t position = 0;     // absolute, of the tokens that are proposed
  int32_t n_generated = 0;  // tokens generated before that position, drafted ones included
  const SamplingParams* params = nullptr;
  const StopParams* stop = nullptr;
  TokenCounts* counts = nullptr;  // without the drafted path; restored on return
  NoiseKey key;
  bool coupled = false;
};

// Adds up to n_children children of one node from the draft's most likely tokens (`top_logits`,
// (token, logit) in any order). Greedy: the likeliest, one-hot. Coupled: by log q + gumbel,
// one-hot. Else drawn from q without replacement, and q goes into the tree. How many children there
// are never depends on what is drawn. Returns how many were added.
int32_t add_children(const GrowthPoint& at, std::span<const TokenProbability> top_logits,
                     int32_t n_children, DraftTree* tree);

}  // namespace pf
