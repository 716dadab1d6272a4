#include "backend/draft_levels.h"

#include <utility>

#include "backend/growth_point.h"

namespace pf {

size_t DraftLevels::n_together(std::span<const ProposeJob> jobs, size_t first, int64_t max_rows) {
  size_t end = first;
  int64_t n = 0;
  do n += rows_of(jobs[end++]);
  while (end < jobs.size() && n + rows_of(jobs[end]) <= max_rows);
  return end - first;
}

void DraftLevels::grow(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  for (size_t first = 0; first < jobs.size();) {
    size_t n = n_together(jobs, first, device_.max_rows);
    grow_together(jobs.subspan(first, n), trees.subspan(first, n));
    first += n;
  }
}

void DraftLevels::grow_together(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  for (size_t j = 0; j < jobs.size(); ++j) trees[j].clear();
  run_committed(jobs);
  for (int32_t depth = 1; n_growing_ > 0; ++depth) {
    grow_level(jobs, trees, depth);
    if (n_growing_ > 0) feed_level(jobs, trees);
  }
}

void DraftLevels::run_committed(std::span<const ProposeJob> jobs) {
  n_growing_ = 0;
  if (growing_.size() < jobs.size()) growing_.resize(jobs.size());
  batch_.clear();
  hidden_.clear();
  for (size_t j = 0; j < jobs.size(); ++j) {
    const ProposeJob& job = jobs[j];
    batch_.add(job.committed, job.base, nullptr, job.blocks,
               job.n_draft > 0 ? Batch::Logits::kLast : Batch::Logits::kNone);
    hidden_.insert(hidden_.end(), job.hidden.begin(), job.hidden.end());
    if (job.n_draft <= 0) continue;
    Growth& g = growing_[n_growing_++];
    g.job = j;
    g.open.assign(1, DraftTree::kRoot);
    g.n_fed = 0;
    if (job.grown_levels > 0) g.grown.begin(job.n_draft, job.grown_levels);
    g.row_of_node_0 = static_cast<int32_t>(batch_.logit_rows.size()) - 1 - DraftTree::kRoot;
  }
  device_.forward(batch_, hidden_);
}

void DraftLevels::feed_level(std::span<const ProposeJob> jobs, std::span<const DraftTree> trees) {
  batch_.clear();
  hidden_.clear();
  for (Growth& g : growing())
    feed_one(jobs[g.job], jobs[g.job].grown_levels > 0 ? g.grown.fed() : trees[g.job], &g);
  device_.forward(batch_, hidden_);
}

// A chain's node is a plain row behind what is there; those of a tree lie behind its root in the
// order in which they came. A head makes a node's row with what it said of the node above, which
// was in the pass before.
void DraftLevels::feed_one(const ProposeJob& job, const DraftTree& tree, Growth* g) {
  const int64_t root = job.base + static_cast<int64_t>(job.committed.size()) - 1;
  const int32_t first = std::exchange(g->n_fed, tree.size());
  if (!job.hidden.empty())
    for (int32_t n = first; n < tree.size(); ++n)
      hidden_.push_back(
          {HiddenRef::In::kOwn, g->row_of_node_0 + tree.parents[static_cast<size_t>(n)]});
  if (job.is_chain())
    batch_.add(std::span(tree.tokens).last(1), root + tree.depth(), nullptr, job.blocks,
               Batch::Logits::kLast);
  else
    batch_.add_nodes(tree, first, root, job.blocks, Batch::Logits::kLast);
  g->row_of_node_0 = static_cast<int32_t>(batch_.logit_rows.size()) - tree.size();
  if (device_.fed_as.empty()) return;
  for (int32_t& token : std::span(batch_.tokens).last(static_cast<size_t>(tree.size() - first)))
    token = device_.fed_as[static_cast<size_t>(token)];
}

void DraftLevels::grow_level(std::span<const ProposeJob> jobs, std::span<DraftTree> trees,
                             int32_t depth) {
  rows_.clear();
  for (Growth& g : growing()) {
    g.first_list = rows_.size();
    for (int32_t node : open(g, jobs[g.job])) rows_.push_back(g.row_of_node_0 + node);
  }
  if (top_.size() < rows_.size()) top_.resize(rows_.size());
  device_.list(rows_, std::span(top_).first(rows_.size()));
  const auto some = [&](int thread, int n_threads) {
    for (auto i = static_cast<size_t>(thread); i < n_growing_; i += static_cast<size_t>(n_threads))
      grow_one(jobs[growing_[i].job], &growing_[i], depth, &trees[growing_[i].job]);
  };
  if (device_.pool == nullptr)
    some(0, 1);
  else
    device_.pool->run([&](int thread) { some(thread, device_.pool->size()); });
  size_t kept = 0;
  for (size_t i = 0; i < n_growing_; ++i)
    if (!growing_[i].complete) std::swap(growing_[kept++], growing_[i]);
  n_growing_ = kept;
}

// Adds one level to a draft.
void DraftLevels::grow_one(const ProposeJob& job, Growth* g, int32_t depth, DraftTree* tree) const {
  if (job.grown_levels > 0) return grow_best(job, g, tree);
  auto lists = [&](size_t i) -> const auto& { return top_[g->first_list + i]; };
  pf::grow_level(job, depth, g->open, lists, tree, &g->next);
  std::swap(g->open, g->next);
  g->complete = g->open.empty() || tree->size() >= job.n_draft || depth >= job.n_levels();
}

void DraftLevels::grow_best(const ProposeJob& job, Growth* g, DraftTree* tree) const {
  g->grown.add_level(growth_point(job, DraftTree::kRoot, 1),
                     std::span(top_).subspan(g->first_list, g->grown.open().size()));
  g->complete = g->grown.complete();
  if (g->complete) g->grown.take(tree);
}

}  // namespace pf
