#include "speculation/early_exit_drafter.h"

#include "speculation/propose_job.h"

namespace pf {

void EarlyExitDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  jobs_.clear();
  for (const DraftTask& task : tasks) jobs_.push_back(propose_job(task, task.sequence->kv_len));
  target_->propose_early(n_layers_, jobs_, trees);
}

}  // namespace pf
