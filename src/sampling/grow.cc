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

// A draw of q by way of the cheap token x, which was drawn from `from` (empty: it is the only one):
// x itself, or one of what q has beyond it. Says whether x was kept.
bool judge(const std::vector<TokenProbability>& q, int32_t x,
           std::span<const TokenProbability> from, double coin, double u, size_t* chosen) {
  auto of = [](std::span<const TokenProbability> law, int32_t token) {
    for (const TokenProbability& e : law)
      if (e.token == token) return e.probability;
    return 0.0f;
  };
  auto at = std::find_if(q.begin(), q.end(), [&](auto& e) { return e.token == x; });
  float qx = at == q.end() ? 0 : at->probability, cx = from.empty() ? 1 : of(from, x);
  if (coin * cx < qx) {
    *chosen = static_cast<size_t>(at - q.begin());
    return true;
  }
  std::vector<TokenProbability> left = q;
  double total = 0;
  for (TokenProbability& e : left) {
    float c = from.empty() ? (e.token == x ? 1.0f : 0.0f) : of(from, e.token);
    total += e.probability = std::max(0.0f, e.probability - c);
  }
  *chosen = pick(total > 1e-7 ? left : q, u);  // below that it is the rounding of the sums
  return false;
}

}  // namespace

// Several children of a greedy request are ranked by its likeliest tokens.
std::vector<TokenProbability> ranked(const GrowthPoint& at,
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

int32_t add_children(const GrowthPoint& at, std::span<const TokenProbability> top_logits,
                     int32_t n_children, DraftTree* tree) {
  return add_ranked(at, ranked(at, top_logits, *tree), n_children, tree);
}

int32_t add_ranked(const GrowthPoint& at, std::vector<TokenProbability> q, int32_t n_children,
                   DraftTree* tree) {
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

int32_t filter_chain(const FilterInput& in, DraftTree* tree) {
  GrowthPoint at = in.root;
  const DraftTree& cheap = *in.cheap;
  bool drawn = !at.params->greedy() && !at.coupled;
  uint32_t ordinal = in.level << 14;  // above those of add_children
  int32_t n = 0;
  for (bool kept = true; kept && n < in.max_nodes; ++n) {
    if (in.rows[static_cast<size_t>(n)].empty()) break;
    std::vector<TokenProbability> q = ranked(at, in.rows[static_cast<size_t>(n)], *tree);
    if (q.empty()) break;
    auto u = [&](uint32_t i) {
      return noise_uniform(at.key, at.position, Purpose::kDraft, ordinal + i);
    };
    bool judged = n < cheap.size();
    int32_t x = judged ? cheap.tokens[static_cast<size_t>(n)] : -1;
    size_t chosen = 0;
    if (!drawn)
      kept = judged && q[0].token == x;
    else if (judged)
      kept = judge(q, x, cheap.q(n), u(0), u(1), &chosen);
    else
      chosen = pick(q, u(1)), kept = false;
    TokenProbability e = q[chosen];
    int32_t first_q = static_cast<int32_t>(tree->q_entries.size());
    if (drawn) tree->q_entries.insert(tree->q_entries.end(), q.begin(), q.end());
    tree->add(e.token, at.node, first_q, e.probability);
    at.node = n;
    ++at.position;
    ++at.n_generated;
  }
  return n;
}

}  // namespace pf
