#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "server/server_state.h"

namespace pf {

// Looks at the engine once a tick, on a thread of its own: a step that does not end, figures of the
// last minute for the metrics, and a line of statistics while there is work.
class Watch {
 public:
  struct Options {
    int64_t tick_us = 500'000;
    int64_t stats_us = 10'000'000;
    int64_t hang_us = 120'000'000;              // no step and no event for so long while calls wait
    std::function<void(double age_s)> on_hang;  // called once, on this thread
  };
  // Requires: state.backing is set and outlives this.
  Watch(ServerState& state, Options options);
  ~Watch();

  Snapshot minute_ago() const;  // or as long ago as there are figures
  // The figures of so long ago, or of as long ago as there are any, and when that was.
  std::pair<int64_t, Snapshot> ago(int64_t us) const;
  // Since the engine last moved on while calls wait for it; 0 when none does. Time in which the
  // whole process stood still (SIGSTOP, docker pause, a machine that slept) does not count.
  int64_t age_us() const;

 private:
  void run();
  void remember(const Snapshot& s, int64_t now_us);
  void say_stats(const Snapshot& s, double seconds);
  void say_dead(const Snapshot& s);

  ServerState& state_;
  const Options options_;
  mutable std::mutex mutex_;
  std::vector<std::pair<int64_t, Snapshot>> past_;  // oldest first; guarded by mutex_
  Snapshot said_;
  uint64_t said_dead_ = 0;           // bit i: drafter i was called dead; once is enough
  std::atomic<int64_t> woke_us_{0};  // when the process last stood still no more
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace pf
