#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace pf {

// Meets all threads of a pool at one point. It is passed hundreds of times per step, so a thread
// spins for a while before it sleeps: others may need its CPU, a partner among them.
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
// Between the begin() and end() of a step the workers spin for the next call, a bounded time; else
// they sleep.
class ThreadPool {
 public:
  // Requires: n_threads >= 1. Threads are not pinned; who measures pins the process (taskset).
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(thread) once for every thread in [0, size()) and returns when all have returned.
  // One caller at a time. `work` may use barrier() any number of times, all threads alike. Nothing
  // is copied or allocated.
  template <class Work>
  void run(Work&& work) {
    using W = std::remove_reference_t<Work>;
    run_call({[](void* w, int thread) { (*static_cast<W*>(w))(thread); },
              const_cast<void*>(static_cast<const void*>(&work))});
  }
  SpinBarrier& barrier() { return barrier_; }

  // Wakes the workers for the calls that will follow soon.
  void begin();
  void end() { active_.store(false, std::memory_order_relaxed); }

 private:
  struct Call {
    void (*function)(void* work, int thread) = nullptr;
    void* work = nullptr;
  };
  void run_call(Call call);
  void serve(int thread);
  void signal();

  SpinBarrier barrier_;
  std::atomic<uint32_t> signals_{0};  // what waiting workers look at
  std::atomic<uint64_t> calls_{0};    // of run
  std::atomic<uint32_t> running_{0};  // workers inside the present call
  std::atomic<bool> active_{false};
  std::atomic<bool> stop_{false};
  Call call_;  // the present one, while running_ > 0
  std::vector<std::thread> workers_;
};

// Splits [0, n) into `parts` ranges of nearly equal length, each a multiple of `grain` but the
// last: the half-open range of `part`.
struct Range {
  int64_t begin, end;
};
Range split_range(int64_t n, int64_t grain, int parts, int part);

// Work on [0, n) that threads take in pieces: each walks its own part in order, then helps where
// others are behind, so that no one waits for a slow or descheduled thread longer than a piece.
class WorkShare {
 public:
  explicit WorkShare(int n_threads)
      : n_threads_(n_threads), taken_(new Counter[static_cast<size_t>(n_threads)]) {}

  // At most `grain` units that nobody has taken; empty when none is left. All threads of a pass
  // name the same n and grain.
  Range take(int64_t n, int64_t grain, int thread);
  // Begins anew. One thread, between barriers.
  void reset();

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> n{0};
  };
  int n_threads_;
  std::unique_ptr<Counter[]> taken_;  // by thread: of its own part
};

}  // namespace pf
