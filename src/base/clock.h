#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace pf {

// Microseconds that only go forward, either the machine's steady clock or one that a test sets.
// Thread-safe. Whoever needs the time takes a `const Clock&`.
class Clock {
 public:
  Clock() = default;  // the steady clock
  explicit Clock(int64_t start_us) : manual_(true), now_us_(start_us) {}

  int64_t now_us() const {
    if (manual_) return now_us_.load(std::memory_order_relaxed);
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  // Requires: made with a start time.
  void advance_us(int64_t by) { now_us_.fetch_add(by, std::memory_order_relaxed); }

 private:
  bool manual_ = false;
  std::atomic<int64_t> now_us_{0};
};

}  // namespace pf
