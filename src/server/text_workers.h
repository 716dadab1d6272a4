#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pf {

// Threads for work on long texts, which may take seconds: the few threads of gRPC that answer
// everybody must not be held by it. First come, first served.
class TextWorkers {
 public:
  TextWorkers(int n_threads, size_t most_waiting);
  ~TextWorkers() { stop(); }

  // A job for a client that may be gone by its turn looks for that first. False: too many wait
  // already, and it is not taken. Any thread.
  bool post(std::function<void()> job);

  // Waits for what runs and drops what waits; nothing is taken from then on.
  void stop();

 private:
  void run();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
  bool stopped_ = false;                       // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace pf
