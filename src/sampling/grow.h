#pragma once

#include <span>
#include <vector>

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

// The two halves of it. q of the position behind the node, in the order in which its children are
// to be taken, or drawn from.
std::vector<TokenProbability> ranked(const GrowthPoint& at,
                                     std::span<const TokenProbability> top_logits,
                                     const DraftTree& tree);
int32_t add_ranked(const GrowthPoint& at, std::vector<TokenProbability> q, int32_t n_children,
                   DraftTree* tree);

// A cheap draft's chain judged by a better draft as the target judges drafts: its tokens are kept
// while u < q(x) / cheap q(x), then comes one token of what is left, or one more when all are kept.
// What is added to `tree` is a sample of the better draft, so its q is that draft's (SPECULATION
// section 1, "cascade"). Greedy and coupled requests keep while equal, one-hot.
struct FilterInput {
  GrowthPoint root;                  // node: kRoot
  const DraftTree* cheap = nullptr;  // a chain; may be empty
  // Of the better draft: its most likely tokens behind the root, then behind each cheap node, as
  // for add_children. An empty row ends the draft: it was not finite.
  std::span<const std::vector<TokenProbability>> rows;
  int32_t max_nodes = 0;
  uint32_t level = 1;  // 1, 2, ...: drafts that judge above each other draw apart
};
// Returns how many nodes were added. Requires: an empty tree, rows.size() > cheap->size().
int32_t filter_chain(const FilterInput& in, DraftTree* tree);

}  // namespace pf
