#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "sampling/grow.h"

namespace pf {

// The position behind a node of a job's draft of which `depth - 1` levels are above.
inline GrowthPoint growth_point(const ProposeJob& job, int32_t node, int32_t depth) {
  return {node,
          job.offset + job.base + static_cast<int64_t>(job.committed.size()) + depth - 1,
          job.n_generated + depth - 1,
          job.params,
          job.stop,
          job.counts,
          job.key,
          job.policy.rule == Acceptance::kCoupled};
}

// One level of a chain or a tree of given widths: children of each open node from lists(i), its
// i-th one's likeliest tokens; none where a draft is ill. They are what stands open next.
void grow_level(const ProposeJob& job, int32_t depth, std::span<const int32_t> open,
                const auto& lists, DraftTree* tree, std::vector<int32_t>* next) {
  next->clear();
  const int32_t width = job.widths.empty() ? 1 : job.widths[static_cast<size_t>(depth - 1)];
  for (size_t i = 0; i < open.size(); ++i) {
    const std::vector<TokenProbability>& list = lists(i);
    if (list.empty()) continue;
    int32_t n = add_children(growth_point(job, open[i], depth), list,
                             std::min(width, job.n_draft - tree->size()), tree);
    for (int32_t c = tree->size() - n; c < tree->size(); ++c) next->push_back(c);
  }
}

}  // namespace pf
