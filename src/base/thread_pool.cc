#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"

namespace pf {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// After so many turns a spinning thread lets others run: its partner may wait for this CPU.
constexpr int kSpinsBeforeYield = 256;

class Spinner {
 public:
  void turn() {
    relax();
    if (++n_ % kSpinsBeforeYield == 0) std::this_thread::yield();
  }

 private:
  int n_ = 0;
};

}  // namespace

void SpinBarrier::wait() {
  if (n_threads_ == 1) return;
  uint32_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    return;
  }
  Spinner spin;
  while (round_.load(std::memory_order_acquire) == round) spin.turn();
}

ThreadPool::ThreadPool(int n_threads) : barrier_(n_threads) {
  check(n_threads >= 1, "a thread pool needs a thread");
  for (int t = 1; t < n_threads; ++t) workers_.emplace_back([this, t] { serve(t); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::begin() {
  if (workers_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    active_.store(true, std::memory_order_relaxed);
  }
  wake_.notify_all();
}

void ThreadPool::run(const std::function<void(int)>& work) {
  if (workers_.empty()) return work(0);
  work_ = &work;
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  {
    std::lock_guard lock(mutex_);  // a worker that is about to sleep must see the new epoch
    epoch_.fetch_add(1, std::memory_order_release);
  }
  if (!active_.load(std::memory_order_relaxed)) wake_.notify_all();
  work(0);
  Spinner spin;
  while (running_.load(std::memory_order_acquire) > 0) spin.turn();
}

void ThreadPool::serve(int thread) {
  uint64_t seen = 0;
  while (true) {
    Spinner spin;
    while (epoch_.load(std::memory_order_acquire) == seen && !stop_.load()) {
      if (active_.load(std::memory_order_relaxed)) {
        spin.turn();
        continue;
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return epoch_.load() != seen || active_.load() || stop_.load(); });
    }
    if (stop_.load()) return;
    ++seen;
    (*work_)(thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

Range split_range(int64_t n, int64_t grain, int parts, int part) {
  int64_t units = (n + grain - 1) / grain;
  int64_t begin = units * part / parts, end = units * (part + 1) / parts;
  return {std::min(n, begin * grain), std::min(n, end * grain)};
}

}  // namespace pf
