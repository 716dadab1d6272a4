#include "scheduler/scheduler.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "batch/batch.h"

namespace pf {

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      waiting_(Urgency{options.aging_us}),
      followers_(Urgency{options.aging_us}) {
  check(options.max_num_seqs >= 1 && options.max_num_seqs <= options.max_num_batched_tokens,
        "a step needs a row for every sequence");
  check(options.aging_us >= 0 && options.aging_us < int64_t{1} << 31, "aging_us is out of range");
  running_.reserve(static_cast<size_t>(options.max_num_seqs));
  grants_.reserve(static_cast<size_t>(options.max_num_seqs));
}

void Scheduler::add(Sequence* sequence) {
  check(sequence->state == Sequence::State::kWaiting, "only a waiting sequence can be added");
  check(waiting_.insert(sequence).second, "two sequences with one order");
  if (sequence->waits_for_leader) followers_.insert(sequence);
}

void Scheduler::remove(Sequence* sequence, KvCache* kv) {
  followers_.erase(sequence);
  if (waiting_.erase(sequence) == 0) {
    auto at = std::lower_bound(running_.begin(), running_.end(), sequence, waiting_.key_comp());
    if (at != running_.end() && *at == sequence) running_.erase(at);
  }
  kv->release(&sequence->table);
  sequence->kv_len = 0;
}

void Scheduler::plan(int64_t now_us, std::span<const Wish> wishes, KvCache* kv, Plan* plan) {
  check(wishes.size() == running_.size(), "one wish for every running sequence");
  plan->clear();
  grants_.clear();
  for (const Wish& wish : wishes) grants_.push_back(Grant{.wish = wish});
  trimmed_ = false;

  int32_t n_rows = options_.max_num_batched_tokens;
  n_rows -= plan_decodes(kv, plan);
  int32_t n_wanted = weigh_wishes();
  int32_t n_prompt_rows = std::max((n_rows + 1) / 2, n_rows - n_wanted);
  int32_t n_taken = plan_prompts(n_prompt_rows);
  if (plan->preempted.empty()) n_taken += admit(now_us, n_prompt_rows - n_taken, kv, plan);
  n_rows -= n_taken;
  cut_drafts(n_rows);
  n_rows -= reserve_drafts(kv);
  plan_catchup(n_rows);
  write(plan);
}

// One row for everyone who decodes. The most urgent take their block first; grants_ and running_
// shrink together when the least urgent are preempted.
int32_t Scheduler::plan_decodes(KvCache* kv, Plan* plan) {
  int32_t n_rows = 0;
  for (size_t i = 0; i < running_.size(); ++i)
    if (running_[i]->decoding() && reserve_urgently(i, kv, plan)) grants_[i].n_rows = 1;
  for (const Grant& grant : grants_) n_rows += grant.n_rows;
  return n_rows;
}

// Decides who may draft in this step; returns how many nodes they want. What drafters feed before
// they draft is a pass of its own, with as many rows at most as a step of the target.
int32_t Scheduler::weigh_wishes() {
  int32_t n_wanted = 0;
  int64_t n_fed = 0;
  int32_t n_inline = std::min(kInlineCatchupTokens, options_.max_num_batched_tokens / 4);
  for (Grant& grant : grants_) {
    if (grant.n_rows == 0 || grant.wish.n_draft <= 0) continue;
    int64_t n = grant.wish.draft_lag;
    grant.lags = n > n_inline;
    if (grant.lags || n_fed + n > options_.max_num_batched_tokens) continue;
    n_fed += n;
    grant.n_wanted = std::min(grant.wish.n_draft, kMaxTreeNodes);
    n_wanted += grant.n_wanted;
  }
  return n_wanted;
}

int32_t Scheduler::plan_prompts(int32_t n_rows) {
  int32_t n_left = n_rows;
  for (size_t i = 0; i < running_.size() && n_left > 0; ++i) {
    if (running_[i]->decoding()) continue;
    grants_[i].n_rows = static_cast<int32_t>(std::min<int64_t>(running_[i]->n_pending(), n_left));
    n_left -= grants_[i].n_rows;
  }
  return n_rows - n_left;
}

// Water-filling: the deeper a node, the less it is worth, so all wishes are cut at one height; the
// most urgent sequences share what is left above it.
void Scheduler::cut_drafts(int32_t n_rows) {
  std::array<int32_t, kMaxTreeNodes + 2> n_wanting{};  // [h] who wants h nodes or more
  for (const Grant& grant : grants_) ++n_wanting[static_cast<size_t>(grant.n_wanted)];
  for (size_t h = kMaxTreeNodes; h > 0; --h) n_wanting[h] += n_wanting[h + 1];
  int32_t height = 0;
  while (height < kMaxTreeNodes && n_wanting[static_cast<size_t>(height + 1)] <= n_rows)
    n_rows -= n_wanting[static_cast<size_t>(++height)];
  for (Grant& grant : grants_) {
    grant.n_draft = std::min(grant.n_wanted, height);
    if (grant.n_wanted > height && n_rows > 0) {
      ++grant.n_draft;
      --n_rows;
    }
  }
}

int32_t Scheduler::reserve_drafts(KvCache* kv) {
  int32_t n_rows = 0;
  for (size_t i = 0; i < grants_.size(); ++i) {
    Sequence* s = running_[i];
    int32_t& n = grants_[i].n_draft;
    if (n == 0) continue;
    int64_t n_blocks = static_cast<int64_t>(s->table.blocks.size()) + kv->n_available();
    n = static_cast<int32_t>(std::min<int64_t>(n, n_blocks * kv->block_tokens() - s->n_tokens()));
    if (n > 0) check(kv->reserve(&s->table, s->n_tokens() + n), "free blocks were miscounted");
    n_rows += n;
  }
  return n_rows;
}

void Scheduler::plan_catchup(int32_t n_rows) {
  int64_t n_left = options_.max_num_batched_tokens;
  for (const Grant& grant : grants_)
    if (grant.n_draft > 0) n_left -= grant.wish.draft_lag;
  n_left = std::min<int64_t>(n_left, n_rows);
  for (Grant& grant : grants_) {
    if (!grant.lags) continue;
    grant.n_catchup = static_cast<int32_t>(std::min(grant.wish.draft_lag, n_left));
    n_left -= grant.n_catchup;
  }
}

void Scheduler::write(Plan* plan) const {
  for (size_t i = 0; i < grants_.size(); ++i) {
    const Grant& grant = grants_[i];
    if (grant.n_rows == 0) continue;
    plan->sequences.push_back({.sequence = running_[i],
                               .n_rows = grant.n_rows,
                               .n_draft = grant.n_draft,
                               .n_draft_catchup = grant.n_catchup,
                               .wants_logits = grant.n_rows == running_[i]->n_pending()});
    plan->n_rows += grant.n_rows + grant.n_draft;
  }
}

}  // namespace pf
