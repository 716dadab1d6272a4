#pragma once

#include <vector>

#include "sampling/draft_tree.h"
#include "sampling/noise.h"

namespace pf {

inline int32_t pick(const std::vector<TokenProbability>& q, double u) {
  double left = u;
  for (auto& e : q)
    if ((left -= e.probability) < 0) return e.token;
  return q.back().token;
}

// Adds `n` children of `parent` drawn from q without replacement; their scores are what q gave
// them.
inline void add_siblings(DraftTree* tree, int32_t parent, std::vector<TokenProbability> q, int n,
                         NoiseKey key, int64_t position) {
  const auto first = static_cast<int32_t>(tree->q_entries.size());
  tree->q_entries.insert(tree->q_entries.end(), q.begin(), q.end());
  for (int i = 0; i < n && !q.empty(); ++i) {
    int32_t x = pick(q, noise_uniform(key, position, Purpose::kDraft, static_cast<uint32_t>(i)));
    float score = 0;
    for (size_t e = static_cast<size_t>(first); e < tree->q_entries.size(); ++e)
      if (tree->q_entries[e].token == x) score = tree->q_entries[e].probability;
    tree->add(x, parent, first, score);
    std::erase_if(q, [&](auto& e) { return e.token == x; });
    double total = 0;
    for (auto& e : q) total += e.probability;
    for (auto& e : q) e.probability = static_cast<float>(e.probability / total);
  }
}

}  // namespace pf
