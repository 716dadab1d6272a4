#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "batch/plan.h"
#include "kv/kv_cache.h"

namespace pf {

struct SchedulerOptions {
  int32_t max_num_seqs = 64;             // sequences that run at once
  int32_t max_num_batched_tokens = 512;  // rows of one step, drafts included; >= max_num_seqs
  int64_t aging_us = 2'000'000;          // waiting this long is worth one step of priority
};

// Who goes first: lower comes first. One fixed order for admission and preemption: what waits
// aging_us longer wins against one step of priority, however long both wait on; so whoever is first
// stays first until it ends, and everybody becomes first.
struct Urgency {
  int64_t aging_us;
  bool operator()(const Sequence* a, const Sequence* b) const {
    int64_t at_a = due(*a), at_b = due(*b);
    return at_a != at_b ? at_a < at_b : a->order < b->order;
  }
  int64_t due(const Sequence& s) const {
    return s.request->priority * aging_us + s.request->arrival_us;
  }
};

// Decides who runs. Knows sequences and blocks, neither models nor drafts. Single-threaded.
class Scheduler {
 public:
  // Requires: 1 <= max_num_seqs <= max_num_batched_tokens, 0 <= aging_us < 2^31.
  explicit Scheduler(const SchedulerOptions& options);

  // Takes a waiting sequence; it stays valid until removed. Its request's priority and arrival and
  // its order (unique) do not change any more. One that waits_for_leader is passed over until its
  // owner clears that; it may have forked a table and set kv_len by then, and starts from those, if
  // nobody who runs has needed the blocks in between (then plan lists it as preempted). O(log n).
  void add(Sequence* sequence);
  // Forgets a sequence, in whatever state, and gives its blocks back. It may be no part of this
  // scheduler: then only its blocks are given back. O(log n) and a shift of running().
  void remove(Sequence* sequence, KvCache* kv);

  using Queue = std::set<Sequence*, Urgency>;
  std::span<Sequence* const> running() const { return running_; }  // most urgent first
  const Queue& waiting() const { return waiting_; }                // in the order of admission
  bool idle() const { return running_.empty() && waiting_.empty(); }

  // Fills *plan. `wishes` goes with running(), entry by entry. Rows are given in this order:
  //   1. every decoding sequence: one row;
  //   2. prompts (recomputation after a preemption is one too), most urgent first, running ones and
  //      then admitted ones: half of what is left, and what the drafts do not want of the rest;
  //   3. draft nodes: the rest, every wish cut at the same height when they do not all fit;
  //   4. a draft's catch-up, for those who would draft but whose drafter lags too far.
  // Blocks are reserved for all of it. A decoding sequence that finds none takes back what rejected
  // drafts have left, then preempts the least urgent sequence, if that is not itself: then it waits
  // a step with its blocks. So the most urgent running sequence always progresses. Drafts take only
  // what is free. A sequence is admitted with the blocks of all its tokens and one more per running
  // sequence; nobody overtakes one that waits for blocks. Nobody is admitted in a step that
  // preempted. Sets kv_len (the prefix hit), and at the first admission n_cached_tokens and
  // first_scheduled_us. O(running + admitted), besides the lookup of the admitted prefixes.
  // Requires: the whole pool can hold any one sequence.
  void plan(int64_t now_us, std::span<const Wish> wishes, KvCache* kv, Plan* plan);

 private:
  struct Grant {  // goes with running_, entry by entry
    Wish wish;
    int32_t n_rows = 0, n_draft = 0, n_catchup = 0;
    int32_t n_wanted = 0;  // draft nodes that would be of use
    bool lags = false;     // no drafts before a catch-up
  };

  int32_t plan_decodes(KvCache* kv, Plan* plan);
  int32_t weigh_wishes();
  int32_t plan_prompts(int32_t n_rows);
  void cut_drafts(int32_t n_rows);
  int32_t reserve_drafts(KvCache* kv);
  void plan_catchup(int32_t n_rows);
  void write(Plan* plan) const;

  int32_t admit(int64_t now_us, int32_t n_rows, KvCache* kv, Plan* plan);
  bool take_blocks(Sequence* sequence, KvCache* kv);
  void start(int64_t now_us, Sequence* sequence, int32_t n_rows);
  bool reserve_urgently(size_t i, KvCache* kv, Plan* plan);
  bool release_fork(const Sequence* except, KvCache* kv, Plan* plan);
  void send_back(Sequence* sequence, KvCache* kv, Plan* plan);

  SchedulerOptions options_;
  std::vector<Sequence*> running_;  // by urgency
  std::vector<Grant> grants_;       // of the step that is being planned
  Queue waiting_;
  Queue followers_;       // the part of waiting_ that may hold blocks: forked, or to be forked
  bool trimmed_ = false;  // in this step, what rejected drafts left has been taken back
  uint64_t refused_order_ = 0;  // who was refused blocks last,
  int64_t refused_spare_ = -1;  // and how many blocks there were beyond one per running sequence
};

}  // namespace pf
