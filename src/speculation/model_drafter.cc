#include "speculation/model_drafter.h"

#include "base/check.h"
#include "speculation/propose_job.h"

namespace pf {

void ModelDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  jobs_.clear();
  for (const DraftTask& task : tasks) {
    const Sequence& s = *task.sequence;
    int64_t base = s.table.filled[static_cast<size_t>(plane_)];
    int64_t n = task.n_draft > 0 ? s.n_tokens() - base : task.n_catchup;
    check(n >= 1 && base + n <= s.n_tokens(),
          "a draft's catch-up lies outside the committed tokens");
    ProposeJob job = propose_job(task, base);
    job.committed = job.committed.first(static_cast<size_t>(n));
    jobs_.push_back(job);
  }
  model_->propose(jobs_, trees);
}

int64_t ModelDrafter::filled_after(const DraftTree& tree, std::span<const int32_t> path,
                                   int64_t n_tokens) const {
  // A node of the last level was proposed but never fed. Fed nodes lie behind the committed tokens
  // in node order; as far as the accepted path lies in that order too, its K and V are in place,
  // and what a branch moved is fed again with the next proposal.
  int64_t n_placed = 0;
  for (size_t j = 0; j < path.size(); ++j) {
    bool fed = tree.depths[static_cast<size_t>(path[j])] < tree.depth();
    if (!fed || path[j] != static_cast<int32_t>(j)) break;
    ++n_placed;
  }
  return n_tokens + n_placed;
}

}  // namespace pf
