#include "server/watch.h"

#include <algorithm>
#include <chrono>

#include "base/thread_name.h"

namespace pf {
namespace {

constexpr int64_t kMinute_us = 60'000'000;
constexpr int64_t kNap_us = 20'000;
// A nap that took so long was the whole process's: it was stopped, paused in its container, or the
// machine slept. The engine could not move either, so its silence counts from the waking.
constexpr int64_t kStoodStill_us = 5'000'000;

}  // namespace

Watch::Watch(ServerState& state, Options options) : state_(state), options_(std::move(options)) {
  said_ = state_.backing->port.snapshot();
  remember(said_, state_.clock.now_us());
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  stop_.store(true);
  thread_.join();
}

Snapshot Watch::minute_ago() const {
  std::lock_guard lock(mutex_);
  return past_.front().second;
}

std::pair<int64_t, Snapshot> Watch::ago(int64_t us) const {
  int64_t at_us = state_.clock.now_us() - us;
  std::lock_guard lock(mutex_);
  auto it = std::find_if(past_.rbegin(), past_.rend(), [&](auto& p) { return p.first <= at_us; });
  return it == past_.rend() ? past_.front() : *it;
}

int64_t Watch::age_us() const {
  int64_t since_us = state_.backing->dispatcher.waiting_since_us();
  if (since_us == 0) return 0;
  since_us =
      std::max({since_us, state_.backing->port.snapshot().last_step_end_us, woke_us_.load()});
  return std::max<int64_t>(0, state_.clock.now_us() - since_us);
}

void Watch::run() {
  name_this_thread("pf-watch");
  bool hung = false;
  int64_t looked_us = state_.clock.now_us();
  int64_t next_us = 0, stats_us = looked_us + options_.stats_us;
  while (!stop_.load()) {
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(kNap_us, options_.tick_us)));
    int64_t now_us = state_.clock.now_us();
    if (now_us - looked_us > kStoodStill_us) {
      woke_us_.store(now_us);
      state_.log.warn("the process stood still",
                      {{"seconds", 1e-6 * static_cast<double>(now_us - looked_us)}});
    }
    looked_us = now_us;
    if (now_us < next_us) continue;
    next_us = now_us + options_.tick_us;
    int64_t age = age_us();
    if (!hung && age > options_.hang_us && options_.on_hang) {
      hung = true;
      options_.on_hang(1e-6 * static_cast<double>(age));
    }
    Snapshot s = state_.backing->port.snapshot();
    remember(s, now_us);
    say_dead(s);
    if (now_us < stats_us) continue;
    stats_us = now_us + options_.stats_us;
    say_stats(s, 1e-6 * static_cast<double>(options_.stats_us));
  }
}

void Watch::remember(const Snapshot& s, int64_t now_us) {
  std::lock_guard lock(mutex_);
  // However fast the ticks are, two a second are enough.
  if (!past_.empty() && now_us - past_.back().first < kMinute_us / 120) return;
  past_.emplace_back(now_us, s);
  while (past_.size() > 1 && past_[1].first <= now_us - kMinute_us) past_.erase(past_.begin());
}

void Watch::say_dead(const Snapshot& s) {
  const std::vector<DrafterDescription>& drafters = state_.backing->model.info.drafters;
  for (size_t i = 0; i < drafters.size() && i < 64; ++i) {
    uint64_t bit = uint64_t{1} << i;
    if (!(s.dead_drafters & ~said_dead_ & bit)) continue;
    said_dead_ |= bit;
    state_.log.warn(
        "dead draft: less than 5 % of what it drafts is kept; is it a draft of this "
        "model? see pilotfish compare",
        {{"drafter", drafters[i].name}});
  }
}

void Watch::say_stats(const Snapshot& s, double seconds) {
  auto since = [](int64_t now, int64_t before) { return static_cast<double>(now - before); };
  if (s.n_steps != said_.n_steps) {
    double drafted = since(s.n_drafted, said_.n_drafted);
    double accepted = since(s.n_accepted, said_.n_accepted);
    state_.log.info(
        "stats",
        {{"running", int64_t{s.n_running}},
         {"waiting", int64_t{s.n_waiting}},
         {"prompt_tokens_per_s", since(s.n_prompt_tokens, said_.n_prompt_tokens) / seconds},
         {"tokens_per_s", since(s.n_generated_tokens, said_.n_generated_tokens) / seconds},
         {"acceptance", drafted > 0 ? accepted / drafted : 0.0},
         {"kv_blocks_in_use", int64_t{s.kv_blocks_in_use}},
         {"kv_blocks", int64_t{s.kv_blocks_total}}});
  }
  said_ = s;
}

}  // namespace pf
