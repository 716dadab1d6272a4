#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace pf {

// Which calls hold a thread of gRPC just now. There are few such threads: while all are held nobody
// accepts a connection, and that is no fault as long as the calls end. Any thread.
class Handlers {
 public:
  // Stands in every method of a service for as long as it runs.
  class Inside {
   public:
    explicit Inside(Handlers& all) : all_(all) {
      if (all_.n_inside_++ == 0) all_.busy_since_us_.store(now_us());
    }
    ~Inside() {
      all_.last_end_us_.store(now_us());
      --all_.n_inside_;
    }
    Inside(const Inside&) = delete;

   private:
    Handlers& all_;
  };

  // Whether some have run without a break since then, and one of them has ended, or the first
  // begun, no longer than `stuck_us` ago. Times are of now_us().
  bool busy_since(int64_t since_us, int64_t stuck_us) const {
    const int64_t began_us = busy_since_us_.load(), ended_us = last_end_us_.load();
    return n_inside_.load() > 0 && began_us <= since_us &&
           now_us() - std::max(began_us, ended_us) < stuck_us;
  }

  static int64_t now_us() {
    using namespace std::chrono;
    return duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
  }

 private:
  std::atomic<int64_t> n_inside_{0}, busy_since_us_{0}, last_end_us_{0};
};

}  // namespace pf
