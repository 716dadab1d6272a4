#include "sampling/grow.h"

#include <algorithm>

#include "sampling/fast_math.h"

namespace pf {
namespace {

// Index of the entry at u of the mass that is left.
size_t pick(const std::vector<TokenProbability>& q, double u) {
  double total = 0;
  for (const TokenProbability& e : q) total += e.probability;
  double left = u * total;
  size_t i = 0;
  while (i + 1 < q.size() && (left -= q[i].probability) >= 0) ++i;
  return i;
}

// q of the position, ranked as the children are to be taken. Several children of a greedy request
// are ranked by its likeliest tokens.
std::vector<TokenProbability> rank(const GrowthPoint& at,
                                   std::span<const TokenProbability> top_logits,
                                   const DraftTree& tree) {
  std::vector<int32_t> path;
  for (int32_t n = at.node; n >= 0; n = tree.parents[static_cast<size_t>(n)])
    path.push_back(tree.tokens[static_cast<size_t>(n)]);
  if (at.counts)
    for (int32_t t : path) at.counts->add_output(t);
  SamplingParams params = *at.params;
  if (params.greedy()) params.temperature = 1;
  RowRules rules{&params, at.counts, {}};
  if (at.n_generated < at.stop->min_new_tokens) rules.banned = at.stop->end_ids;
  std::vector<TokenProbability> q;
  make_draft_distribution(rules, top_logits, &q);
  if (at.counts)
    for (int32_t t : path) at.counts->remove_output(t);
  if (!at.coupled || at.params->greedy()) return q;
  std::vector<std::pair<float, TokenProbability>> scored;
  for (const TokenProbability& e : q)
    scored.push_back(
        {log_positive(std::max(e.probability, 1e-37f)) + gumbel(at.key, at.position, e.token), e});
  std::stable_sort(scored.begin(), scored.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < q.size(); ++i) q[i] = scored[i].second;
  return q;
}

}  // namespace

int32_t add_children(const GrowthPoint& at, std::span<const TokenProbability> top_logits,
                     int32_t n_children, DraftTree* tree) {
  std::vector<TokenProbability> q = rank(at, top_logits, *tree);
  bool drawn = !at.params->greedy() && !at.coupled;
  int32_t first_q = static_cast<int32_t>(tree->q_entries.size());
  if (drawn) tree->q_entries.insert(tree->q_entries.end(), q.begin(), q.end());
  int32_t n = static_cast<int32_t>(std::min<size_t>(static_cast<size_t>(n_children), q.size()));
  for (int32_t i = 0; i < n; ++i) {
    // Cousins stand at one position too: the node keeps their draws apart.
    uint32_t ordinal = static_cast<uint32_t>((at.node + 1) * kMaxTreeNodes + i);
    size_t chosen =
        drawn ? pick(q, noise_uniform(at.key, at.position, Purpose::kDraft, ordinal)) : 0;
    TokenProbability e = q[chosen];
    q.erase(q.begin() + static_cast<std::ptrdiff_t>(chosen));
    if (drawn)
      tree->add(e.token, at.node, first_q, e.probability);
    else
      tree->add_one_hot(e.token, at.node, e.probability);
  }
  return n;
}

}  // namespace pf
