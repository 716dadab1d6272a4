#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace pf {

// A first-in first-out queue with a fixed capacity, any number of producers and consumers.
// Pushing never waits: a full queue says no, and the caller decides what that means.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when full or closed; `value` is then untouched.
  bool try_push(T&& value) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return pop_locked();
  }

  // Waits until there is an item, the queue is closed, wake() was called or the time is over.
  std::optional<T> pop_for(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, time, [&] { return !items_.empty() || closed_ || woken_; });
    woken_ = false;
    return pop_locked();
  }

  // Waits without a limit; nothing is returned only when closed and empty, or woken.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !items_.empty() || closed_ || woken_; });
    woken_ = false;
    return pop_locked();
  }

  // Ends one wait (or the next one) without an item.
  void wake() {
    {
      std::lock_guard lock(mutex_);
      woken_ = true;
    }
    ready_.notify_all();
  }

  // No item enters any more; what is inside can still be taken.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t capacity() const { return capacity_; }

 private:
  std::optional<T> pop_locked() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;  // guarded by mutex_
  bool closed_ = false;  // guarded by mutex_
  bool woken_ = false;   // guarded by mutex_
};

}  // namespace pf
