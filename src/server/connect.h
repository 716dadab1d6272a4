#pragma once

#include <string>

namespace pf {

// Opens a TCP connection to a port that this process listens on. `listen` is the HOST:PORT it was
// told; a wildcard host is reached over loopback. The descriptor, or -1: nobody accepts in time.
int connect_to_self(const std::string& listen, int port, int timeout_ms);

}  // namespace pf
