#include "speculation/medusa_drafter.h"

#include "speculation/propose_job.h"

namespace pf {

int32_t MedusaDrafter::match_length(const Sequence& sequence) {
  auto it = kept_.find(sequence.order);
  bool ready = it != kept_.end() && it->second.position == sequence.n_tokens() - 2;
  return ready ? static_cast<int32_t>(sequence.n_tokens()) : 0;
}

void MedusaDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  jobs_.clear();
  hidden_.clear();
  hidden_.reserve(tasks.size());  // jobs point into it
  for (const DraftTask& task : tasks) {
    ProposeJob job = propose_job(task, task.sequence->n_tokens() - 1);
    hidden_.push_back({HiddenRef::In::kBlock, kept_.at(task.sequence->order).slot});
    job.hidden = std::span(hidden_).last(1);
    jobs_.push_back(job);
  }
  heads_->propose(jobs_, trees);
}

void MedusaDrafter::absorb(std::span<AbsorbTask> tasks) {
  kept_.clear();
  keeps_.clear();
  for (const AbsorbTask& task : tasks) {
    if (task.rows.empty()) continue;
    auto slot = static_cast<int32_t>(keeps_.size());
    keeps_.push_back({task.rows.back(), slot});
    kept_[task.sequence->order] = {slot, task.first + static_cast<int64_t>(task.rows.size()) - 1};
  }
  if (!keeps_.empty()) heads_->keep_hidden(keeps_);
}

}  // namespace pf
