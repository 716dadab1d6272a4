#include "backend/draft_levels.h"

#include "sampling/grow.h"

namespace pf {

void DraftLevels::grow(const Device& device, std::span<const ProposeJob> jobs,
                       std::span<DraftTree> trees) {
  growing_.clear();
  batch_.clear();
  for (size_t j = 0; j < jobs.size(); ++j) {
    trees[j].clear();
    batch_.add(jobs[j].committed, jobs[j].base, nullptr, jobs[j].blocks,
               jobs[j].n_draft > 0 ? Batch::Logits::kLast : Batch::Logits::kNone);
    if (jobs[j].n_draft > 0)
      growing_.push_back(
          {j, {DraftTree::kRoot}, static_cast<int32_t>(batch_.logit_rows.size()) - 1});
  }
  device.forward(batch_);
  for (int32_t depth = 1; !growing_.empty(); ++depth) {
    size_t n_left = 0;
    for (Growth& g : growing_) {
      top_.resize(std::max(top_.size(), g.open.size()));
      device.list(g.first_logit_row, static_cast<int32_t>(g.open.size()),
                  std::span(top_).first(g.open.size()));
      if (grow_one(jobs[g.job], &g, depth, &trees[g.job])) std::swap(growing_[n_left++], g);
    }
    growing_.resize(n_left);
    if (growing_.empty()) return;
    feed_level(device, jobs, trees, depth);
    device.forward(batch_);
  }
}

// A chain's node is a plain row behind what is there; a tree is fed with its root again, so that
// its nodes lie behind it.
void DraftLevels::feed_level(const Device& device, std::span<const ProposeJob> jobs,
                             std::span<const DraftTree> trees, int32_t depth) {
  batch_.clear();
  auto translate = [&](size_t first_row) {
    if (device.fed_as.empty()) return;
    for (size_t r = first_row; r < batch_.tokens.size(); ++r)
      batch_.tokens[r] = device.fed_as[static_cast<size_t>(batch_.tokens[r])];
  };
  for (Growth& g : growing_) {
    const ProposeJob& job = jobs[g.job];
    const DraftTree& tree = trees[g.job];
    int64_t last = job.base + static_cast<int64_t>(job.committed.size()) - 1;
    if (job.widths.empty()) {
      batch_.add(std::span(tree.tokens).last(1), last + depth, nullptr, job.blocks,
                 Batch::Logits::kLast);
      translate(batch_.tokens.size() - 1);
      g.first_logit_row = static_cast<int32_t>(batch_.logit_rows.size()) - 1;
    } else {
      g.first_logit_row = static_cast<int32_t>(batch_.logit_rows.size()) + 1 + g.open.front();
      batch_.add(job.committed.last(1), last, &tree, job.blocks, Batch::Logits::kLast);
      translate(batch_.tokens.size() - static_cast<size_t>(tree.size()));
    }
  }
}

// Adds one level to a draft; false when it is complete.
bool DraftLevels::grow_one(const ProposeJob& job, Growth* g, int32_t depth, DraftTree* tree) {
  std::vector<int32_t> level;
  int32_t width = job.widths.empty() ? 1 : job.widths[static_cast<size_t>(depth - 1)];
  for (size_t i = 0; i < g->open.size(); ++i) {
    if (top_[i].empty()) continue;  // a draft that is ill proposes nothing
    GrowthPoint at{g->open[i],
                   job.offset + job.base + static_cast<int64_t>(job.committed.size()) + depth - 1,
                   job.n_generated + depth - 1,
                   job.params,
                   job.stop,
                   job.counts,
                   job.key,
                   job.policy.rule == Acceptance::kCoupled};
    int32_t n = add_children(at, top_[i], std::min(width, job.n_draft - tree->size()), tree);
    for (int32_t c = tree->size() - n; c < tree->size(); ++c) level.push_back(c);
  }
  g->open = level;
  size_t depths = job.widths.empty() ? static_cast<size_t>(job.n_draft) : job.widths.size();
  return !level.empty() && tree->size() < job.n_draft && static_cast<size_t>(depth) < depths;
}

}  // namespace pf
