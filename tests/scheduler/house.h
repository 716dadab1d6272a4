#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "scheduler/scheduler.h"

namespace pf {

// What an engine does around the scheduler, without models: the next token of a sequence is a
// function of its length and first token; of a draft the first n_accepted nodes are kept.
class House {
 public:
  struct Call {
    int32_t n_prompt = 1;
    int32_t priority = 0;
    int64_t arrival_us = 0;
    int32_t first_token = 0;  // the prompt counts up from here
    bool prompt_logprobs = false;
  };

  House(const SchedulerOptions& options, int32_t n_blocks, int32_t block_tokens = 4)
      : scheduler(options), kv({n_blocks, block_tokens, 2, true}), options_(options) {}

  Sequence& add(const Call& call) {
    Request& r = *requests_.emplace_back(std::make_unique<Request>());
    r.prompt.resize(static_cast<size_t>(call.n_prompt));
    std::iota(r.prompt.begin(), r.prompt.end(), call.first_token);
    r.priority = call.priority;
    r.arrival_us = call.arrival_us;
    r.output.prompt_logprobs = call.prompt_logprobs;
    return make(&r, 0);
  }

  Sequence& add_follower(const Sequence& leader) { return make(leader.request, 1); }

  // Requires: the leader's prompt has run. False: no block for the copy.
  bool try_fork(const Sequence& leader, Sequence* follower) {
    int64_t n = leader.n_prompt() - 1;
    if (!kv.fork(leader.table, n, &follower->table).ok) return false;
    follower->kv_len = n;
    follower->waits_for_leader = false;
    return true;
  }

  void fork(const Sequence& leader, Sequence* follower) { ASSERT_TRUE(try_fork(leader, follower)); }

  const Plan& plan(int64_t now_us) {
    wishes_.assign(scheduler.running().size(), wish);
    for (size_t i = 0; drafter_keeps_kv && i < wishes_.size(); ++i) {
      const Sequence& s = *scheduler.running()[i];
      if (s.decoding()) wishes_[i].draft_lag = s.n_tokens() - s.table.filled[1];
    }
    scheduler.plan(now_us, wishes_, &kv, &plan_);
    check_plan();
    return plan_;
  }

  void execute() {
    for (const PlannedSequence& p : plan_.sequences) {
      Sequence& s = *p.sequence;
      const std::string& salt = s.request->cache_salt;
      if (p.n_draft_catchup > 0)
        kv.commit(&s.table, 1, s.tokens, s.table.filled[1] + p.n_draft_catchup, salt);
      int64_t n_kept = s.kv_len + p.n_rows;
      if (p.wants_logits) {
        int32_t n_new = 1 + std::min(p.n_draft, n_accepted);
        for (int32_t i = 0; i < n_new; ++i)
          s.tokens.push_back(1000000 + s.tokens[0] * 1000 + static_cast<int32_t>(s.n_tokens()));
        n_kept += n_new - 1;
      }
      kv.commit(&s.table, kTargetPlane, s.tokens, n_kept, salt);
      s.kv_len = s.table.filled[kTargetPlane];
    }
  }

  void step(int64_t now_us) {
    plan(now_us);
    execute();
  }

  void finish(Sequence* s) {
    s->state = Sequence::State::kFinished;
    scheduler.remove(s, &kv);
  }

  const Plan& last_plan() const { return plan_; }

  void check_blocks() const {
    std::vector<const BlockTable*> live;
    for (const auto& s : sequences_) live.push_back(&s->table);
    kv.check_integrity(live);
  }

  Scheduler scheduler;
  KvCache kv;
  Wish wish;                      // of everyone
  bool drafter_keeps_kv = false;  // in plane 1
  int32_t n_accepted = 64;        // of a draft

 private:
  Sequence& make(const Request* request, int32_t index) {
    Sequence& s = *sequences_.emplace_back(std::make_unique<Sequence>());
    s.request = request;
    s.index = index;
    s.order = sequences_.size();
    s.tokens = request->prompt;
    s.waits_for_leader = index > 0;
    scheduler.add(&s);
    return s;
  }

  // What holds for every plan, whatever led to it.
  void check_plan() {
    int32_t n_rows = 0;
    std::vector<Sequence*> decoding;
    for (const PlannedSequence& p : plan_.sequences) {
      const Sequence& s = *p.sequence;
      n_rows += p.n_rows + p.n_draft;
      ASSERT_EQ(s.state, Sequence::State::kRunning);
      ASSERT_GE(p.n_rows, 1);
      ASSERT_LE(p.n_rows, s.n_pending());
      ASSERT_EQ(p.wants_logits, p.n_rows == s.n_pending());
      ASSERT_TRUE(p.n_draft == 0 || (p.wants_logits && p.n_draft_catchup == 0));
      ASSERT_EQ(s.kv_len, s.table.filled[kTargetPlane]);
      ASSERT_LE(s.kv_len + p.n_rows + p.n_draft,
                static_cast<int64_t>(s.table.blocks.size()) * kv.block_tokens());
    }
    ASSERT_EQ(n_rows, plan_.n_rows);
    ASSERT_LE(n_rows, options_.max_num_batched_tokens);
    ASSERT_LE(scheduler.running().size(), static_cast<size_t>(options_.max_num_seqs));
    ASSERT_TRUE(std::is_sorted(scheduler.running().begin(), scheduler.running().end(),
                               scheduler.waiting().key_comp()));
  }

  SchedulerOptions options_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<Wish> wishes_;
  Plan plan_;
};

}  // namespace pf
