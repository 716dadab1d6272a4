#include "speculation/eagle_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "speculation/propose_job.h"

namespace pf {

EagleDrafter::EagleDrafter(Options options, std::unique_ptr<Backend> head)
    : options_(std::move(options)),
      head_(std::move(head)),
      of_blocks_(static_cast<size_t>(options_.n_blocks * options_.width)) {}

const float* EagleDrafter::hidden_before(const Sequence& sequence, int64_t slot) const {
  auto it = last_.find(sequence.order);
  if (it != last_.end() && it->second.position == slot - 1) return it->second.hidden.data();
  if (slot % options_.block_tokens != 0) return nullptr;
  // The block before is full, so its last token was run when it was filled.
  BlockId block = sequence.table.blocks[static_cast<size_t>(slot / options_.block_tokens - 1)];
  return of_blocks_.data() + block * options_.width;
}

int32_t EagleDrafter::match_length(const Sequence& sequence) {
  int64_t n = sequence.n_tokens();
  bool ready = n >= 2 && sequence.table.filled[static_cast<size_t>(options_.plane)] == n - 1 &&
               hidden_before(sequence, n - 1) != nullptr;
  return ready ? static_cast<int32_t>(n) : 0;
}

void EagleDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  jobs_.clear();
  for (const DraftTask& task : tasks) {
    ProposeJob job = propose_job(task, task.sequence->n_tokens() - 1);
    job.hidden = hidden_before(*task.sequence, job.base);
    check(job.hidden != nullptr, "a head drafts without a hidden state");
    jobs_.push_back(job);
  }
  head_->propose(jobs_, trees);
}

void EagleDrafter::absorb(std::span<AbsorbTask> tasks, const Backend& target) {
  jobs_.clear();
  size_t n_rows = 0;
  for (const AbsorbTask& task : tasks) n_rows += task.rows.size() + 1;
  hidden_.clear();
  hidden_.reserve(n_rows * static_cast<size_t>(options_.width));  // jobs point into it
  for (AbsorbTask& task : tasks) {
    if (task.rows.empty()) continue;
    if (fill(&task, target)) task.filled = task.first + static_cast<int64_t>(task.rows.size());
    remember(task, target);
  }
  none_.resize(std::max(none_.size(), jobs_.size()));
  if (!jobs_.empty()) head_->propose(jobs_, std::span(none_).first(jobs_.size()));
}

// Slots from `filled` up to where the target has come. False: a hidden state is missing.
bool EagleDrafter::fill(AbsorbTask* task, const Backend& target) {
  const Sequence& s = *task->sequence;
  int64_t begin = std::max<int64_t>(task->filled, 1);
  int64_t end = task->first + static_cast<int64_t>(task->rows.size());
  if (begin >= end) return true;
  if (begin < task->first) return false;
  const float* before = begin == task->first ? hidden_before(s, begin) : nullptr;
  if (begin == task->first && before == nullptr) return false;
  ProposeJob job;
  job.base = begin;
  job.committed =
      std::span(s.tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  job.blocks = s.table.blocks;
  job.hidden = hidden_.data() + hidden_.size();
  for (int64_t slot = begin; slot < end; ++slot) {
    if (slot == task->first) {
      hidden_.insert(hidden_.end(), before, before + options_.width);
    } else {
      auto row = target.hidden(task->rows[static_cast<size_t>(slot - 1 - task->first)]);
      hidden_.insert(hidden_.end(), row.begin(), row.end());
    }
  }
  jobs_.push_back(job);
  return true;
}

void EagleDrafter::remember(const AbsorbTask& task, const Backend& target) {
  for (size_t i = 0; i < task.rows.size(); ++i) {
    int64_t position = task.first + static_cast<int64_t>(i);
    if ((position + 1) % options_.block_tokens != 0) continue;
    auto row = target.hidden(task.rows[i]);
    std::copy(
        row.begin(), row.end(),
        of_block(
            task.sequence->table.blocks[static_cast<size_t>(position / options_.block_tokens)]));
  }
  auto row = target.hidden(task.rows.back());
  Last& last = last_[task.sequence->order];
  last.position = task.first + static_cast<int64_t>(task.rows.size()) - 1;
  last.hidden.assign(row.begin(), row.end());
}

void EagleDrafter::fork(const Sequence& from, const Sequence& to) {
  auto it = last_.find(from.order);
  if (it == last_.end()) return;
  Last copy = it->second;
  last_[to.order] = std::move(copy);
}

}  // namespace pf
