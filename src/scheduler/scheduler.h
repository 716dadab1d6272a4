#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "batch/plan.h"
#include "kv/kv_cache.h"

namespace pf {

struct SchedulerOptions {
  int32_t max_num_seqs = 64;             // sequences that run at once
  int32_t max_num_batched_tokens = 512;  // rows of one step, drafts included; >= max_num_seqs
  int32_t draft_plane = -1;              // plane whose catch-up is planned; -1: none
  int64_t aging_us = 2'000'000;          // waiting this long is worth one step of priority
};

// Decides who runs. Knows sequences and blocks, neither models nor drafts. Single-threaded.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Takes a waiting sequence; it stays valid until removed.
  void add(Sequence* sequence);
  // Forgets a sequence, in whatever state, and gives its blocks back.
  void remove(Sequence* sequence, KvCache* kv);

  std::span<Sequence* const> running() const { return running_; }
  std::span<Sequence* const> waiting() const { return waiting_; }
  bool idle() const { return running_.empty() && waiting_.empty(); }

  // Fills *plan. `wishes` goes with running(), entry by entry. Reserves the blocks of all planned
  // rows and draft nodes, preempts (newest and least urgent first) when blocks run short, admits
  // from the queue (priority with aging, then order) while rows and blocks last. Whoever came
  // first always makes progress.
  void plan(int64_t now_us, std::span<const Wish> wishes, KvCache* kv, Plan* plan);

 private:
  SchedulerOptions options_;
  std::vector<Sequence*> running_;  // by admission
  std::vector<Sequence*> waiting_;  // in the order in which they would be admitted
};

}  // namespace pf
