#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/thread_name.h"
#include "server/engine_port.h"

namespace pf {

// An engine without a model, with the contract of engine/engine.h: each step gives every running
// completion the next letters of the alphabet, a round of `round` tokens. Steps come every
// millisecond while `running`; tests can hold it still.
class FakeEngine {
 public:
  // `clock`, which outlives this: what steps, deadlines and times go by; null: the steady one.
  explicit FakeEngine(int32_t max_queue = 4, int64_t max_context = 64, const Clock* clock = nullptr)
      : max_queue(max_queue),
        clock_(clock != nullptr ? *clock : steady_),
        outbox_(1 << 16),
        max_context_(max_context) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() {
    stop_.store(true);
    thread_.join();
  }

  bool submit(std::unique_ptr<Request>& request) {
    std::lock_guard lock(mutex_);
    if (static_cast<int32_t>(live_.size()) >= max_queue.load()) return false;
    uint64_t ticket = request->ticket;
    Live& live = live_[ticket];
    live.counts.assign(static_cast<size_t>(request->n), 0);
    live.open = request->n;
    live.request = std::move(request);
    ++n_submitted;
    return true;
  }
  void cancelled(uint64_t) { ++n_cancelled; }
  void finish_all(FinishReason reason) { finish_.store(reason); }
  BoundedQueue<Event>& outbox() { return outbox_; }
  Snapshot snapshot() const {
    std::lock_guard lock(mutex_);
    Snapshot s = figures_;
    s.n_waiting = waiting.load();
    s.n_running = static_cast<int32_t>(live_.size());
    s.last_step_end_us = last_step_us_;
    s.dead_drafters = dead.load();
    return s;
  }
  void change(const std::function<void(Snapshot*)>& edit) {
    std::lock_guard lock(mutex_);
    edit(&figures_);
  }
  EnginePolicy policy() const {
    std::lock_guard lock(mutex_);
    return policy_;
  }
  void set_policy(const EnginePolicy& policy) {
    std::lock_guard lock(mutex_);
    policy_ = policy;
  }
  size_t n_live() const {
    std::lock_guard lock(mutex_);
    return live_.size();
  }

  std::atomic<int32_t> max_queue;  // requests that it takes at a time
  std::atomic<bool> running{true};
  std::atomic<uint64_t> dead{0};  // Snapshot::dead_drafters
  std::atomic<int> round{1};
  std::atomic<int32_t> waiting{0};        // what the snapshot says
  std::atomic<bool> corrupt_last{false};  // the next round of the youngest request is not finite
  std::atomic<int> n_submitted{0}, n_cancelled{0};

 private:
  struct Live {
    std::unique_ptr<Request> request;
    std::vector<int64_t> counts;  // tokens by completion; -1: finished
    int32_t open = 0;
    bool prompt_said = false;
  };

  void run() {
    name_this_thread("pf-engine");
    while (!stop_.load()) {
      if (running.load()) step();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void step() {
    std::lock_guard lock(mutex_);
    last_step_us_ = clock_.now_us();
    FinishReason all = finish_.exchange(FinishReason::kNone);
    for (auto it = live_.begin(); it != live_.end();) {
      for (size_t i = 0; i < it->second.counts.size(); ++i)
        if (it->second.counts[i] >= 0) advance(it->first, it->second, i, all);
      it = it->second.open == 0 ? live_.erase(it) : std::next(it);
    }
  }

  FinishReason limit(const Request& r, size_t index) const {
    if (r.cancel != nullptr && (r.cancel->load() >> index & 1)) return FinishReason::kCancelled;
    if (clock_.now_us() >= r.deadline_us) return FinishReason::kDeadline;
    if (clock_.now_us() >= r.time_limit_us) return FinishReason::kTimeLimit;
    if (r.stop.max_new_tokens == 0) return FinishReason::kLength;
    return FinishReason::kNone;
  }

  void advance(uint64_t ticket, Live& live, size_t i, FinishReason all) {
    const Request& r = *live.request;
    Event e;
    e.ticket = ticket;
    e.index = static_cast<int32_t>(i);
    e.has_prompt = !live.prompt_said;
    live.prompt_said = true;
    e.finish = all != FinishReason::kNone ? all : limit(r, i);
    if (ticket == live_.rbegin()->first && corrupt_last.exchange(false))
      e.finish = FinishReason::kCorrupted;
    int64_t fits = max_context_ + 1 - static_cast<int64_t>(r.prompt.size());
    for (int k = 0; k < round.load() && e.finish == FinishReason::kNone; ++k) {
      e.tokens.push_back('a' + static_cast<int32_t>(live.counts[i]++ % 26));
      e.origins.push_back(Origin::kTarget);
      if (r.output.logprobs) e.logprobs.push_back({-1, {}});
      if (live.counts[i] >= r.stop.max_new_tokens)
        e.finish = FinishReason::kLength;
      else if (live.counts[i] >= fits)
        e.finish = FinishReason::kContextFull;
    }
    if (e.finish != FinishReason::kNone) {
      live.counts[i] = -1;
      --live.open;
      e.times = {r.arrival_us, r.arrival_us + 1, r.arrival_us + 2, clock_.now_us()};
    }
    outbox_.try_push(std::move(e));
  }

  const Clock steady_;
  const Clock& clock_;
  BoundedQueue<Event> outbox_;
  const int64_t max_context_;
  mutable std::mutex mutex_;
  Snapshot figures_ = [] {  // what snapshots say besides
    Snapshot s;
    s.n_drafted = 10;
    s.n_accepted = 4;
    s.accepted_at = {3, 1};
    return s;
  }();
  std::map<uint64_t, Live> live_;
  EnginePolicy policy_ = [] {
    EnginePolicy p;
    p.num_draft_tokens = 5;
    p.drafters = {"ngram", "model"};
    return p;
  }();
  int64_t last_step_us_ = 0;
  std::atomic<FinishReason> finish_{FinishReason::kNone};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace pf
