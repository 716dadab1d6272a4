#pragma once

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

}  // namespace pf
