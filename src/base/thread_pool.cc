#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/thread_name.h"

namespace pf {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// About what it costs to put a thread to sleep and wake it: who has waited that long in vain waits
// for one that the system has taken off its CPU, and only an idle CPU invites that one back.
constexpr std::chrono::microseconds kSpin{50};
// Between the calls of a step, while the caller works alone.
constexpr std::chrono::microseconds kSpinBetweenCalls{300};

// Until `word` is no longer `old`. Who changes it calls notify_all().
void await_change(const std::atomic<uint32_t>& word, uint32_t old,
                  std::chrono::microseconds longest) {
  constexpr int kTurns = 64;  // between looks at the clock
  std::chrono::steady_clock::time_point end{};
  for (int turn = 1; word.load(std::memory_order_acquire) == old; ++turn) {
    relax();
    if (turn % kTurns != 0) continue;
    auto now = std::chrono::steady_clock::now();
    if (turn == kTurns) end = now + longest;
    if (now < end) continue;
    word.wait(old, std::memory_order_acquire);
    return;
  }
}

}  // namespace

void SpinBarrier::wait() {
  if (n_threads_ == 1) return;
  uint32_t round = round_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.store(round + 1, std::memory_order_release);
    round_.notify_all();
    return;
  }
  await_change(round_, round, kSpin);
}

ThreadPool::ThreadPool(int n_threads) : barrier_(n_threads) {
  check(n_threads >= 1, "a thread pool needs a thread");
  for (int t = 1; t < n_threads; ++t) workers_.emplace_back([this, t] { serve(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  signal();
  for (std::thread& t : workers_) t.join();
}

void ThreadPool::signal() {
  signals_.fetch_add(1, std::memory_order_release);
  signals_.notify_all();
}

void ThreadPool::begin() {
  if (workers_.empty()) return;
  active_.store(true, std::memory_order_relaxed);
  signal();
}

void ThreadPool::run_call(Call call) {
  if (workers_.empty()) return call.function(call.work, 0);
  call_ = call;
  running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  calls_.fetch_add(1, std::memory_order_release);
  signal();
  call.function(call.work, 0);
  for (uint32_t n; (n = running_.load(std::memory_order_acquire)) > 0;)
    await_change(running_, n, kSpin);
}

void ThreadPool::serve(int thread) {
  name_this_thread("pf-compute");
  uint64_t seen = 0;
  while (true) {
    uint32_t signals = signals_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    if (calls_.load(std::memory_order_acquire) == seen) {
      bool active = active_.load(std::memory_order_relaxed);
      await_change(signals_, signals, active ? kSpinBetweenCalls : kSpin);
      continue;
    }
    ++seen;
    call_.function(call_.work, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

Range split_range(int64_t n, int64_t grain, int parts, int part) {
  int64_t units = (n + grain - 1) / grain;
  int64_t begin = units * part / parts, end = units * (part + 1) / parts;
  return {std::min(n, begin * grain), std::min(n, end * grain)};
}

Range WorkShare::take(int64_t n, int64_t grain, int thread) {
  for (int i = 0; i < n_threads_; ++i) {
    int owner = (thread + i) % n_threads_;
    Range part = split_range(n, 1, n_threads_, owner);
    std::atomic<int64_t>& taken = taken_[static_cast<size_t>(owner)].n;
    if (part.begin + taken.load(std::memory_order_relaxed) >= part.end) continue;
    int64_t begin = part.begin + taken.fetch_add(grain, std::memory_order_relaxed);
    if (begin < part.end) return {begin, std::min(part.end, begin + grain)};
  }
  return {n, n};
}

void WorkShare::reset() {
  for (int t = 0; t < n_threads_; ++t)
    taken_[static_cast<size_t>(t)].n.store(0, std::memory_order_relaxed);
}

}  // namespace pf
