#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pf {

// Meets all threads of a pool at one point. Spins: it is passed hundreds of times per step.
class SpinBarrier {
 public:
  explicit SpinBarrier(int n_threads) : n_threads_(n_threads) {}
  void wait();

 private:
  const int n_threads_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> round_{0};
};

// A fixed team of threads that run one function together: thread 0 is the caller's own.
// Between the begin() and end() of a step the workers spin for the next call; else they sleep.
class ThreadPool {
 public:
  // Requires: n_threads >= 1. Threads are not pinned; who measures pins the process (taskset).
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(thread) once for every thread in [0, size()) and returns when all have returned.
  // One caller at a time. `work` may use barrier() any number of times, all threads alike.
  void run(const std::function<void(int)>& work);
  SpinBarrier& barrier() { return barrier_; }

  // While active, workers wait by spinning.
  void begin();
  void end() { active_.store(false, std::memory_order_relaxed); }

 private:
  void serve(int thread);

  SpinBarrier barrier_;
  std::atomic<uint64_t> epoch_{0};  // counts calls of run
  std::atomic<int> running_{0};     // workers inside the present call
  std::atomic<bool> active_{false};
  std::atomic<bool> stop_{false};
  const std::function<void(int)>* work_ = nullptr;  // valid while running_ > 0
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

// Splits [0, n) into `parts` ranges of nearly equal length, each a multiple of `grain` but the
// last: the half-open range of `part`.
struct Range {
  int64_t begin, end;
};
Range split_range(int64_t n, int64_t grain, int parts, int part);

}  // namespace pf
