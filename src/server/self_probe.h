#pragma once

#include <functional>
#include <string>
#include <thread>

#include "server/handlers.h"

namespace pf {

// Opens a new connection to our own port from time to time and waits for a sign of life. gRPC goes
// deaf when descriptors run out, with old connections still served: only a new one shows it. Where
// calls held its threads all the while it was busy, which is another thing than deaf.
class SelfProbe {
 public:
  struct Options {
    int64_t period_us = 5'000'000;
    int timeout_ms = 5'000;
    int most_failures = 3;           // in a row, those while it was busy left out
    int64_t stuck_us = 120'000'000;  // calls of which none ends for so long are no excuse
    std::function<void()> on_deaf;   // called once, on this thread
  };
  // `handlers` must outlive this.
  SelfProbe(std::string listen, int port, const Handlers& handlers, Options options);
  ~SelfProbe();

 private:
  void run(std::stop_token stop);
  bool answers() const;

  const std::string listen_;
  const int port_;
  const Handlers& handlers_;
  const Options options_;
  std::jthread thread_;
};

}  // namespace pf
