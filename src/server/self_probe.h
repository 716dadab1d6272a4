#pragma once

#include <functional>
#include <string>
#include <thread>

namespace pf {

// Opens a new connection to our own port from time to time and waits for a sign of life. gRPC goes
// deaf when descriptors run out, with old connections still served: only a new one shows it.
class SelfProbe {
 public:
  struct Options {
    int64_t period_us = 5'000'000;
    int timeout_ms = 5'000;
    int most_failures = 3;          // in a row
    std::function<void()> on_deaf;  // called once, on this thread
  };
  SelfProbe(std::string listen, int port, Options options);
  ~SelfProbe();

 private:
  void run(std::stop_token stop);
  bool answers() const;

  const std::string listen_;
  const int port_;
  const Options options_;
  std::jthread thread_;
};

}  // namespace pf
