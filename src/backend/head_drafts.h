#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"

namespace pf {

// Drafts of heads that each name one position to come (Cai et al., "Medusa", 2024): head h lists
// the likeliest tokens of level h + 1, whatever stands on the levels between.
//
// The law: what a head lists is a function of the committed text. Greedy and coupled children are
// the first of that list, by fixed noise: known before any draw, one-hot. Drawn ones come from the
// head's q of their position, without replacement among siblings and, for each node above, with
// draws of their own; q is what they were drawn from, and how many there are was fixed before (the
// widths; in a tree that grows, their ancestors). That q does not look at the node above makes it a
// worse draft, not another law. Penalties and bans see the drafted path, as everywhere.

// Levels that a job asks of the heads.
inline int32_t head_levels(const ProposeJob& job, int32_t n_heads) {
  if (job.n_draft <= 0) return 0;
  return std::min(job.n_levels(), n_heads);
}

// Trees in the jobs' order, cleared first. lists [n_heads, jobs]: (token, logit) in any order;
// empty: the head is ill there, and the draft ends.
void grow_from_heads(std::span<const ProposeJob> jobs, int32_t n_heads,
                     std::span<const std::vector<TokenProbability>> lists, ThreadPool* pool,
                     std::span<DraftTree> trees);

}  // namespace pf
