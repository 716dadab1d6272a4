#include "server/self_probe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string_view>

#include "base/thread_name.h"
#include "server/connect.h"

namespace pf {
namespace {

// The client's half of an HTTP/2 greeting with an empty SETTINGS frame. A plain server answers with
// its own; a TLS server takes it for a broken handshake and hangs up. Both show that it listens.
constexpr std::string_view kGreeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

}  // namespace

SelfProbe::SelfProbe(std::string listen, int port, const Handlers& handlers, Options options)
    : listen_(std::move(listen)), port_(port), handlers_(handlers), options_(std::move(options)) {
  thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
}

SelfProbe::~SelfProbe() = default;

bool SelfProbe::answers() const {
  int fd = connect_to_self(listen_, port_, options_.timeout_ms);
  if (fd < 0) return false;
  pollfd waiting{fd, POLLIN, 0};
  char byte;
  bool alive = send(fd, kGreeting.data(), kGreeting.size(), MSG_NOSIGNAL) >= 0 &&
               poll(&waiting, 1, options_.timeout_ms) == 1 &&
               (recv(fd, &byte, 1, 0) >= 0 || errno == ECONNRESET);
  close(fd);
  return alive;
}

void SelfProbe::run(std::stop_token stop) {
  name_this_thread("pf-probe");
  std::mutex mutex;
  std::condition_variable_any nap;
  for (int failures = 0;;) {
    std::unique_lock lock(mutex);
    nap.wait_for(lock, stop, std::chrono::microseconds(options_.period_us), [] { return false; });
    if (stop.stop_requested()) return;
    const int64_t began_us = Handlers::now_us();
    if (answers())
      failures = 0;
    else if (!handlers_.busy_since(began_us, options_.stuck_us))
      ++failures;
    if (failures < options_.most_failures) continue;
    if (options_.on_deaf) options_.on_deaf();
    return;
  }
}

}  // namespace pf
