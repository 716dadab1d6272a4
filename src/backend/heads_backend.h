#pragma once

#include <algorithm>
#include <span>

#include "backend/backend.h"
#include "base/check.h"

namespace pf {

// What heads that only draft (head_drafts.h) have in common on every device: jobs go in as many
// together as there is room for, and there are no rows, no KV and no logits to be asked for.
class HeadsBackend : public Backend {
 public:
  void propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) final {
    for (size_t first = 0; first < jobs.size(); first += most_jobs_) {
      const size_t n = std::min(most_jobs_, jobs.size() - first);
      propose_some(jobs.subspan(first, n), trees.subspan(first, n));
    }
  }

  void copy_blocks(std::span<const BlockCopy>) final {}
  void forward(const Batch&) final { die("heads run no rows"); }
  void accept(std::span<const AcceptJob>, std::span<AcceptResult>) final { die("as above"); }
  void score(std::span<const ScoreJob>, std::span<TokenLogprob>) final { die("as above"); }
  void read_logits(int32_t, int32_t, View<float, 2>) final { die("as above"); }
  HiddenStates hidden_states() const final { die("as above"); }
  void propose_early(int32_t, std::span<const ProposeJob>, std::span<DraftTree>) final {
    die("as above");
  }
  void move_slots(std::span<const SlotMove>) final { die("as above"); }

 protected:
  explicit HeadsBackend(int64_t most_jobs) : most_jobs_(static_cast<size_t>(most_jobs)) {}

 private:
  virtual void propose_some(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) = 0;

  const size_t most_jobs_;
};

}  // namespace pf
