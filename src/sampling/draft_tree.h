#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pf {

struct TokenProbability {
  int32_t token;
  float probability;
};

inline constexpr int kMaxTreeNodes = 64;  // as many as a 64-bit ancestor mask can name

// Proposed continuations of one sequence. Node i continues parents[i], or the last committed
// token when that is kRoot; parents precede children. A chain is a tree without branches.
//
// q of a node is the distribution that its token was drawn from. Whether a node exists may depend
// only on what was known before its token was drawn, or the accept rule loses the target's law
// (SpecInfer's "naive sampling" fault). A deterministic proposal carries one-hot q: an empty range.
struct DraftTree {
  static constexpr int32_t kRoot = -1;

  std::vector<int32_t> tokens;
  std::vector<int32_t> parents;
  std::vector<int32_t> depths;   // 1 for children of the root
  std::vector<int32_t> q_begin;  // node's q: q_entries[q_begin, q_end); empty = one-hot
  std::vector<int32_t> q_end;    // siblings drawn without replacement share one range
  std::vector<float> scores;  // the draft's softmax score of the token, for rules with a threshold
  std::vector<TokenProbability> q_entries;  // sums to 1 over a range; each token at most once
  // Of a tree that was pruned after it had grown (sampling/grown_tree.h): the levels that were
  // looked at, and by node which of those it was that its draft was fed, others too; -1: none.
  // 0, empty: what was fed lies in node order, and the last level was not fed.
  int32_t n_grown_levels = 0;
  std::vector<int32_t> fed_as;

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t depth() const { return depths.empty() ? 0 : depths.back(); }  // nodes are level by level
  // Where behind the root the draft that proposed the tree has K and V of a node; -1: nowhere.
  int32_t place_in_draft(int32_t node) const {
    if (n_grown_levels > 0) return fed_as[static_cast<size_t>(node)];
    return depths[static_cast<size_t>(node)] < depth() ? node : -1;
  }
  std::span<const TokenProbability> q(int32_t node) const {
    return {q_entries.data() + q_begin[node], q_entries.data() + q_end[node]};
  }
  void clear() {
    tokens.clear();
    parents.clear();
    depths.clear();
    q_begin.clear();
    q_end.clear();
    q_entries.clear();
    scores.clear();
    n_grown_levels = 0;
    fed_as.clear();
  }
  // A node whose q is the entries added since `q_first`, or one-hot when there are none.
  // Requires: size() < kMaxTreeNodes, parent < size().
  void add(int32_t token, int32_t parent, int32_t q_first, float score) {
    depths.push_back(parent == kRoot ? 1 : depths[static_cast<size_t>(parent)] + 1);
    tokens.push_back(token);
    parents.push_back(parent);
    q_begin.push_back(q_first);
    q_end.push_back(static_cast<int32_t>(q_entries.size()));
    scores.push_back(score);
  }
  void add_one_hot(int32_t token, int32_t parent, float score = 1) {
    add(token, parent, static_cast<int32_t>(q_entries.size()), score);
  }
};

}  // namespace pf
