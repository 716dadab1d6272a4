#include "server/text_workers.h"

#include "base/thread_name.h"

namespace pf {

TextWorkers::TextWorkers(int n_threads, size_t most_waiting) : most_waiting_(most_waiting) {
  for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { run(); });
}

bool TextWorkers::post(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_ || waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void TextWorkers::stop() {
  std::deque<std::function<void()>> dropped;  // ends without the lock
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(waiting_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void TextWorkers::run() {
  name_this_thread("pf-text");
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || !waiting_.empty(); });
      if (stopped_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    job();
  }
}

}  // namespace pf
