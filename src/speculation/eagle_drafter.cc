#include "speculation/eagle_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "speculation/propose_job.h"

namespace pf {

EagleDrafter::EagleDrafter(Options options, std::unique_ptr<Backend> head)
    : options_(std::move(options)),
      head_(std::move(head)),
      kept_at_(static_cast<size_t>(options_.n_blocks), -1) {}

bool EagleDrafter::knows_before(const Sequence& sequence, int64_t slot, HiddenRef* at) const {
  const int64_t position = slot - 1, P = options_.block_tokens;
  BlockId block = sequence.table.blocks[static_cast<size_t>(position / P)];
  *at = {HiddenRef::In::kBlock, block};
  return kept_at_[static_cast<size_t>(block)] == position % P;
}

int32_t EagleDrafter::match_length(const Sequence& sequence) {
  int64_t n = sequence.n_tokens();
  HiddenRef at;
  bool ready = n >= 2 && sequence.table.filled[static_cast<size_t>(options_.plane)] == n - 1 &&
               knows_before(sequence, n - 1, &at);
  return ready ? static_cast<int32_t>(n) : 0;
}

void EagleDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  jobs_.clear();
  hidden_.clear();
  hidden_.reserve(tasks.size());  // jobs point into it
  for (const DraftTask& task : tasks) {
    ProposeJob job = propose_job(task, task.sequence->n_tokens() - 1);
    HiddenRef at;
    check(knows_before(*task.sequence, job.base, &at), "a head drafts without a hidden state");
    hidden_.push_back(at);
    job.hidden = std::span(hidden_).last(1);
    jobs_.push_back(job);
  }
  head_->propose(jobs_, trees);
}

void EagleDrafter::absorb(std::span<AbsorbTask> tasks) {
  jobs_.clear();
  size_t n_rows = 0;
  for (const AbsorbTask& task : tasks) n_rows += task.rows.size() + 1;
  hidden_.clear();
  hidden_.reserve(n_rows);  // jobs point into it
  for (AbsorbTask& task : tasks)
    if (!task.rows.empty() && fill(&task))
      task.filled = task.first + static_cast<int64_t>(task.rows.size());
  none_.resize(std::max(none_.size(), jobs_.size()));
  if (!jobs_.empty()) head_->propose(jobs_, std::span(none_).first(jobs_.size()));
  // Now what the rows were made with may give way.
  keeps_.clear();
  for (const AbsorbTask& task : tasks)
    if (!task.rows.empty()) remember(task);
  if (!keeps_.empty()) head_->keep_hidden(keeps_);
}

// Slots from `filled` up to where the target has come. False: a hidden state is missing.
bool EagleDrafter::fill(AbsorbTask* task) {
  const Sequence& s = *task->sequence;
  int64_t begin = std::max<int64_t>(task->filled, 1);
  int64_t end = task->first + static_cast<int64_t>(task->rows.size());
  if (begin >= end) return true;
  if (begin < task->first) return false;
  HiddenRef before;
  if (begin == task->first && !knows_before(s, begin, &before)) return false;
  ProposeJob job;
  job.base = begin;
  job.committed =
      std::span(s.tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  job.blocks = s.table.blocks;
  for (int64_t slot = begin; slot < end; ++slot)
    hidden_.push_back(slot == task->first
                          ? before
                          : HiddenRef{HiddenRef::In::kForward,
                                      task->rows[static_cast<size_t>(slot - 1 - task->first)]});
  job.hidden = std::span(hidden_).last(job.committed.size());
  jobs_.push_back(job);
  return true;
}

// The states of the last token in every block that the rows have touched.
void EagleDrafter::remember(const AbsorbTask& task) {
  for (size_t i = 0; i + 1 < task.rows.size(); ++i)
    if ((task.first + static_cast<int64_t>(i) + 1) % options_.block_tokens == 0) keep(task, i);
  keep(task, task.rows.size() - 1);
}

void EagleDrafter::keep(const AbsorbTask& task, size_t row) {
  const int64_t position = task.first + static_cast<int64_t>(row), P = options_.block_tokens;
  BlockId block = task.sequence->table.blocks[static_cast<size_t>(position / P)];
  keeps_.push_back({task.rows[row], block});
  kept_at_[static_cast<size_t>(block)] = static_cast<int32_t>(position % P);
}

void EagleDrafter::copy_blocks(std::span<const BlockCopy> copies) {
  head_->copy_blocks(copies);
  for (BlockCopy c : copies)
    kept_at_[static_cast<size_t>(c.to)] = kept_at_[static_cast<size_t>(c.from)];
}

}  // namespace pf
