#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/grow.h"

namespace pf {

// Nodes of the first `depth` of n_levels levels of a tree that grows up to n_nodes: as many for
// each level. Requires: 1 <= n_levels <= n_nodes, depth <= n_levels.
inline int32_t grown_nodes(int32_t n_nodes, int32_t n_levels, int32_t depth) {
  return (n_nodes * depth + n_levels - 1) / n_levels;
}

// A tree that grows where it is likeliest to be kept, level by level, from a draft's likeliest
// tokens. Worth of a node: the product of what the draft gives to each token on its path.
//
// Greedy and coupled requests (Li et al. 2024, "EAGLE-2"): all that could be said is known without
// a draw, so any tree keeps the law. The best nodes of each level are fed back to the draft, and of
// all that were seen the n best are kept. Worth never rises along a path, so they are a tree.
//
// Drawn drafts: which nodes there are is fixed before their tokens are drawn, by their ancestors
// alone. Each level has its share of the nodes; a node's i-th child is worth the i-th largest
// probability of q behind it, whatever will be drawn for that child. Nothing is taken away again:
// to drop a node for what was drawn for it, as the rule above would, loses the target's law
// (tests/sampling/grown_law_test.cc sees it).
class GrownTree {
 public:
  // Requires: 1 <= n_levels <= n_nodes <= kMaxTreeNodes.
  void begin(int32_t n_nodes, int32_t n_levels);

  // What the draft is fed: at most n_nodes nodes, kept or not.
  const DraftTree& fed() const { return fed_; }
  // Nodes of fed() (kRoot at first) behind which the draft's likeliest tokens are wanted.
  std::span<const int32_t> open() const { return open_; }
  // The next level. `root`: of the position behind the root. `top`: by open node, as for
  // add_children; empty: the draft is ill there.
  void add_level(const GrowthPoint& root, std::span<const std::vector<TokenProbability>> top);
  bool complete() const { return open_.empty(); }
  // The tree, once complete.
  void take(DraftTree* tree);

 private:
  struct Candidate {
    double worth = 0;
    float score = 0;  // DraftTree::scores
    int32_t token = 0;
    int32_t parent = -1;  // of candidates_; -1: the root
    int32_t open = 0;     // which of the open nodes it goes on from
    int32_t place = -1;   // in fed_ while it grows, in the tree behind that; -1: not there
  };

  GrowthPoint at_level(const GrowthPoint& root, int32_t node) const;
  void see(const GrowthPoint& root, std::span<const std::vector<TokenProbability>> top);
  void feed_best(size_t first);
  void draw(const GrowthPoint& root, std::span<const std::vector<TokenProbability>> top);

  int32_t n_nodes_ = 0, n_levels_ = 0, n_grown_ = 0;  // n_grown_: levels so far
  bool drawn_ = false;
  DraftTree fed_;
  std::vector<int32_t> open_;
  std::vector<Candidate> candidates_;   // level by level; of a drawn tree only the present level's
  std::vector<int32_t> fed_candidate_;  // by node of fed_: its candidate
  std::vector<double> worth_;           // by node of a drawn tree
  // Reused.
  std::vector<std::vector<TokenProbability>> q_;  // by open node
  std::vector<double> chances_;
  std::vector<size_t> order_;
  std::vector<int32_t> next_, n_children_;
};

}  // namespace pf
