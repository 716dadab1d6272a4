// Who may hold blocks: admission, preemption, and the blocks of forks that have not run yet.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace pf {

// Admits in the order of the queue while rows, places and blocks last; returns the rows given.
// Followers without a table are passed over: there are as many as the prompts in progress have.
int32_t Scheduler::admit(int64_t now_us, int32_t n_rows, KvCache* kv, Plan* plan) {
  int32_t n_left = n_rows;
  for (auto at = waiting_.begin(); at != waiting_.end() && n_left > 0;) {
    Sequence* s = *at;
    if (running_.size() == static_cast<size_t>(options_.max_num_seqs)) break;
    if (s->waits_for_leader) {
      ++at;
      continue;
    }
    bool taken = take_blocks(s, kv);
    while (!taken && running_.empty() && release_fork(s, kv, plan)) taken = take_blocks(s, kv);
    check(taken || !running_.empty(), "a sequence is longer than all KV blocks");
    if (!taken) break;
    at = waiting_.erase(at);
    followers_.erase(s);
    int32_t n = static_cast<int32_t>(std::min<int64_t>(s->n_pending(), n_left));
    n_left -= n;
    start(now_us, s, n);
  }
  return n_rows - n_left;
}

// All blocks of the sequence, shared prefix included, or none. Looking up a long prefix is not
// free, so who was refused is not asked again before there are more blocks than then.
bool Scheduler::take_blocks(Sequence* s, KvCache* kv) {
  int64_t n_spare = kv->n_available() - static_cast<int64_t>(running_.size());
  if (s->order == refused_order_ && n_spare <= refused_spare_ && !running_.empty()) return false;
  bool scored = s->request->output.prompt_logprobs && s->index == 0 && s->n_generated() == 0;
  int64_t limit = scored ? 0 : s->n_tokens() - 1;  // the prompt's log-probabilities need its rows
  const std::string& salt = s->request->cache_salt;
  bool forked = !s->table.blocks.empty();
  KvCache::PrefixHit hit;
  if (!forked) hit = kv->find_prefix(s->tokens, salt, limit);
  int64_t n_held = forked ? static_cast<int64_t>(s->table.blocks.size())
                          : hit.n_tokens / kv->block_tokens() - hit.n_cached;
  if (kv->blocks_for(s->n_tokens()) - n_held > n_spare) {
    refused_order_ = s->order;
    refused_spare_ = n_spare;
    return false;
  }
  refused_spare_ = -1;
  if (!forked) {
    s->kv_len = kv->acquire_prefix(&s->table, s->tokens, salt, limit);
    if (s->first_scheduled_us < 0 && s->n_preemptions == 0) s->n_cached_tokens = s->kv_len;
  }
  check(kv->reserve(&s->table, s->n_tokens()), "free blocks were miscounted");
  return true;
}

void Scheduler::start(int64_t now_us, Sequence* s, int32_t n_rows) {
  auto at = std::lower_bound(running_.begin(), running_.end(), s, waiting_.key_comp());
  grants_.insert(grants_.begin() + (at - running_.begin()), Grant{.wish = {}, .n_rows = n_rows});
  running_.insert(at, s);
  s->state = Sequence::State::kRunning;
  if (s->first_scheduled_us < 0) s->first_scheduled_us = now_us;
}

// Slots for all tokens of running_[i], whatever it costs those behind it. False: nobody is behind.
bool Scheduler::reserve_urgently(size_t i, KvCache* kv, Plan* plan) {
  Sequence* s = running_[i];
  while (!kv->reserve(&s->table, s->n_tokens())) {
    if (!trimmed_) {
      for (Sequence* each : running_) kv->trim(&each->table, each->n_tokens());
      trimmed_ = true;
    } else if (release_fork(nullptr, kv, plan)) {
      continue;
    } else if (running_.size() > i + 1) {
      Sequence* victim = running_.back();
      running_.pop_back();
      grants_.pop_back();
      victim->state = Sequence::State::kWaiting;
      waiting_.insert(victim);
      send_back(victim, kv, plan);
    } else {
      check(i > 0, "a sequence is longer than all KV blocks");
      return false;
    }
  }
  return true;
}

// Takes the blocks of the least urgent fork that waits with its table. Later it finds most of them
// again through the prefix index.
bool Scheduler::release_fork(const Sequence* except, KvCache* kv, Plan* plan) {
  for (auto at = followers_.rbegin(); at != followers_.rend(); ++at) {
    if (*at == except || (*at)->table.blocks.empty()) continue;
    send_back(*at, kv, plan);
    return true;
  }
  return false;
}

void Scheduler::send_back(Sequence* s, KvCache* kv, Plan* plan) {
  kv->release(&s->table);
  s->kv_len = 0;
  ++s->n_preemptions;
  plan->preempted.push_back(s);
}

}  // namespace pf
