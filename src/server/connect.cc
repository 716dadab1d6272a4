#include "server/connect.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace pf {
namespace {

std::string host_of(const std::string& listen) {
  std::string host = listen.substr(0, listen.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || host == "0.0.0.0" ||
      host.find_first_not_of("0123456789") == std::string::npos)
    return "127.0.0.1";
  return host == "::" ? "::1" : host;
}

bool connected(int fd, const addrinfo& address, int timeout_ms) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd waiting{fd, POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof(error);
  return poll(&waiting, 1, timeout_ms) == 1 &&
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

int connect_to_self(const std::string& listen, int port, int timeout_ms) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host_of(listen).c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return -1;
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connected(fd, *found, timeout_ms)) return fd;
  close(fd);
  return -1;
}

}  // namespace pf
