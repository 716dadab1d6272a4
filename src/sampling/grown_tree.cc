#include "sampling/grown_tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sampling/fast_math.h"

namespace pf {
namespace {

// How likely each token of a ranked q is the target's. Of coupled requests: by log q + gumbel, the
// softmax of which tells how sure the first one is.
void chances(const GrowthPoint& at, std::span<const TokenProbability> q, std::vector<double>* out) {
  out->clear();
  for (const TokenProbability& e : q) out->push_back(e.probability);
  if (!at.coupled || at.params->greedy() || q.empty()) return;
  double total = 0;
  auto score = [&](const TokenProbability& e) {
    return log_positive(std::max(e.probability, 1e-37f)) + gumbel(at.key, at.position, e.token);
  };
  const double first = score(q[0]);
  for (size_t i = 0; i < q.size(); ++i) total += (*out)[i] = std::exp(score(q[i]) - first);
  for (double& chance : *out) chance /= total;
}

}  // namespace

void GrownTree::begin(int32_t n_nodes, int32_t n_levels) {
  n_nodes_ = n_nodes;
  n_levels_ = n_levels;
  n_grown_ = 0;
  drawn_ = false;
  fed_.clear();
  open_.assign(1, DraftTree::kRoot);
  candidates_.clear();
  fed_candidate_.clear();
  worth_.clear();
}

GrowthPoint GrownTree::at_level(const GrowthPoint& root, int32_t node) const {
  GrowthPoint at = root;
  at.node = node;
  at.position += n_grown_;
  at.n_generated += n_grown_;
  return at;
}

void GrownTree::add_level(const GrowthPoint& root,
                          std::span<const std::vector<TokenProbability>> top) {
  drawn_ = !root.params->greedy() && !root.coupled;
  if (drawn_)
    draw(root, top);
  else
    see(root, top);
  if (++n_grown_ == n_levels_) open_.clear();
}

// Everything that could come behind the open nodes, and which of it is looked behind next.
void GrownTree::see(const GrowthPoint& root, std::span<const std::vector<TokenProbability>> top) {
  const size_t first = candidates_.size();
  for (size_t i = 0; i < open_.size(); ++i) {
    if (top[i].empty()) continue;
    const int32_t node = open_[i];
    const GrowthPoint at = at_level(root, node);
    const std::vector<TokenProbability> q = ranked(at, top[i], fed_);
    chances(at, q, &chances_);
    const int32_t parent = node < 0 ? -1 : fed_candidate_[static_cast<size_t>(node)];
    const double worth = parent < 0 ? 1 : candidates_[static_cast<size_t>(parent)].worth;
    for (size_t c = 0; c < q.size() && c < static_cast<size_t>(n_nodes_); ++c)
      candidates_.push_back(
          {worth * chances_[c], q[c].probability, q[c].token, parent, static_cast<int32_t>(i)});
  }
  feed_best(first);
}

// As many to each level as there is room for in the draft's memory. Once n nodes are worth more
// than all that is fed, nothing behind it can be among the n best.
void GrownTree::feed_best(size_t first) {
  const auto better = [&](size_t a, size_t b) {
    return candidates_[a].worth != candidates_[b].worth
               ? candidates_[a].worth > candidates_[b].worth
               : a < b;
  };
  next_.clear();
  order_.resize(candidates_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  const size_t n = std::min(order_.size(), static_cast<size_t>(n_nodes_));
  std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(n), order_.end(),
                    better);
  size_t width = static_cast<size_t>(std::max(1, n_nodes_ / std::max(1, n_levels_ - 1)));
  order_.resize(n);
  std::erase_if(order_, [&](size_t c) { return c < first; });
  order_.resize(std::min(order_.size(), width));
  std::sort(order_.begin(), order_.end());
  if (n_grown_ + 1 == n_levels_) order_.clear();
  for (size_t c : order_) {
    Candidate& best = candidates_[c];
    const int32_t parent = open_[static_cast<size_t>(best.open)];
    best.place = fed_.size();
    next_.push_back(best.place);
    fed_.add_one_hot(best.token, parent, best.score);
    fed_candidate_.push_back(static_cast<int32_t>(c));
  }
  std::swap(open_, next_);
}

// How many children each open node has, before any of them is drawn; then the draws.
void GrownTree::draw(const GrowthPoint& root, std::span<const std::vector<TokenProbability>> top) {
  const int32_t n_level = grown_nodes(n_nodes_, n_levels_, n_grown_ + 1) - fed_.size();
  q_.resize(std::max(q_.size(), open_.size()));
  candidates_.clear();
  for (size_t i = 0; i < open_.size(); ++i) {
    q_[i].clear();
    if (!top[i].empty()) q_[i] = ranked(at_level(root, open_[i]), top[i], fed_);
    const double worth = open_[i] < 0 ? 1 : worth_[static_cast<size_t>(open_[i])];
    for (size_t c = 0; c < q_[i].size() && c < static_cast<size_t>(n_level); ++c)
      candidates_.push_back({worth * q_[i][c].probability, 0, 0, -1, static_cast<int32_t>(i), -1});
  }
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.worth > b.worth; });
  candidates_.resize(std::min(candidates_.size(), static_cast<size_t>(n_level)));
  n_children_.assign(open_.size(), 0);
  for (const Candidate& c : candidates_) ++n_children_[static_cast<size_t>(c.open)];
  next_.clear();
  for (size_t i = 0; i < open_.size(); ++i) {
    if (n_children_[i] == 0) continue;
    const double worth = open_[i] < 0 ? 1 : worth_[static_cast<size_t>(open_[i])];
    for (int32_t c = 0; c < n_children_[i]; ++c)
      worth_.push_back(worth * q_[i][static_cast<size_t>(c)].probability);
    const int32_t n = fed_.size();
    add_ranked(at_level(root, open_[i]), std::move(q_[i]), n_children_[i], &fed_);
    for (int32_t node = n; node < fed_.size(); ++node) next_.push_back(node);
  }
  std::swap(open_, next_);
}

void GrownTree::take(DraftTree* tree) {
  if (drawn_) {
    std::swap(*tree, fed_);
    return;
  }
  tree->clear();
  order_.resize(candidates_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return candidates_[a].worth > candidates_[b].worth; });
  order_.resize(std::min(order_.size(), static_cast<size_t>(n_nodes_)));
  std::sort(order_.begin(), order_.end());
  for (size_t i : order_) {
    Candidate& c = candidates_[i];
    tree->fed_as.push_back(c.place);
    c.place = tree->size();
    tree->add_one_hot(
        c.token, c.parent < 0 ? DraftTree::kRoot : candidates_[static_cast<size_t>(c.parent)].place,
        c.score);
  }
  tree->n_grown_levels = n_grown_;
}

}  // namespace pf
