#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace pf {

// Whose cancel flag has been raised since the engine last asked: any thread says so, the engine
// thread takes the list. So nobody's flag has to be looked at while it waits.
class Cancels {
 public:
  void raise(uint64_t ticket) {
    std::lock_guard lock(mutex_);
    tickets_.push_back(ticket);
    any_.store(true, std::memory_order_relaxed);
  }

  // Replaces *tickets by what was raised. What is raised meanwhile is found by the next call.
  void take(std::vector<uint64_t>* tickets) {
    tickets->clear();
    if (!any_.load(std::memory_order_relaxed)) return;
    std::lock_guard lock(mutex_);
    std::swap(*tickets, tickets_);
    any_.store(false, std::memory_order_relaxed);
  }

 private:
  std::mutex mutex_;
  std::vector<uint64_t> tickets_;  // guarded by mutex_
  std::atomic<bool> any_{false};
};

}  // namespace pf
