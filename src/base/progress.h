#pragma once

#include <atomic>
#include <cstdint>

namespace pf {

// How far long work has come, in bytes: counted by the threads that do it, looked at by any. What
// is expected is known before the first byte is done, and done never exceeds it.
class Progress {
 public:
  void expect(int64_t bytes) { total_.fetch_add(bytes, std::memory_order_relaxed); }
  void add(int64_t bytes) { done_.fetch_add(bytes, std::memory_order_relaxed); }
  int64_t total() const { return total_.load(std::memory_order_relaxed); }
  int64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> total_{0}, done_{0};
};

// One thread's part of the counting. It adds up first, so that threads which do little at a time
// do not meet at the counter all the time. Nothing is counted without a `progress`.
class ProgressTally {
 public:
  explicit ProgressTally(Progress* progress) : progress_(progress) {}
  ~ProgressTally() { hand_over(); }
  ProgressTally(const ProgressTally&) = delete;
  ProgressTally& operator=(const ProgressTally&) = delete;

  void add(int64_t bytes) {
    bytes_ += bytes;
    if (bytes_ >= kAtOnce) hand_over();
  }

 private:
  static constexpr int64_t kAtOnce = 1 << 20;
  void hand_over() {
    if (progress_) progress_->add(bytes_);
    bytes_ = 0;
  }

  Progress* progress_;
  int64_t bytes_ = 0;
};

}  // namespace pf
