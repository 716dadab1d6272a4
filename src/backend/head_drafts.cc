#include "backend/head_drafts.h"

#include "backend/growth_point.h"
#include "sampling/grown_tree.h"

namespace pf {
namespace {

void grow_by_widths(const ProposeJob& job, int32_t n_levels, const auto& list_of, DraftTree* tree) {
  std::vector<int32_t> open = {DraftTree::kRoot}, next;
  for (int32_t depth = 1; depth <= n_levels && !open.empty(); ++depth) {
    auto same = [&](size_t) -> const auto& { return list_of(depth - 1); };
    grow_level(job, depth, open, same, tree, &next);
    std::swap(open, next);
  }
}

void grow_by_gain(const ProposeJob& job, int32_t n_levels, const auto& list_of, DraftTree* tree) {
  GrownTree grown;
  grown.begin(job.n_draft, std::min(n_levels, job.n_draft));
  std::vector<std::vector<TokenProbability>> same;
  for (int32_t head = 0; !grown.complete(); ++head) {
    same.assign(grown.open().size(), list_of(head));
    grown.add_level(growth_point(job, DraftTree::kRoot, 1), same);
  }
  grown.take(tree);
  tree->n_grown_levels = 0;  // there is no plane, and all heads were asked at once
}

}  // namespace

void grow_from_heads(std::span<const ProposeJob> jobs, int32_t n_heads,
                     std::span<const std::vector<TokenProbability>> lists, ThreadPool* pool,
                     std::span<DraftTree> trees) {
  auto one = [&](size_t j) {
    const ProposeJob& job = jobs[j];
    trees[j].clear();
    const int32_t n_levels = head_levels(job, n_heads);
    if (n_levels == 0) return;
    auto list_of = [&](int32_t head) -> const std::vector<TokenProbability>& {
      return lists[static_cast<size_t>(head) * jobs.size() + j];
    };
    if (job.grown_levels > 0)
      grow_by_gain(job, n_levels, list_of, &trees[j]);
    else
      grow_by_widths(job, n_levels, list_of, &trees[j]);
  };
  if (pool == nullptr) {
    for (size_t j = 0; j < jobs.size(); ++j) one(j);
    return;
  }
  pool->run([&](int thread) {
    for (auto j = static_cast<size_t>(thread); j < jobs.size();
         j += static_cast<size_t>(pool->size()))
      one(j);
  });
}

}  // namespace pf
