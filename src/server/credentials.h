#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace pf {

struct TlsFiles {
  std::string cert, key;  // PEM; both or none
  std::string client_ca;  // PEM; then every client must show a certificate of it
};

// Plain credentials without files. With files, changed ones are taken up within kTlsRefreshSeconds,
// so certificates rotate without a restart. Errors name the flag and the file.
inline constexpr unsigned kTlsRefreshSeconds = 1;
Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files);

// What is wrong with their dates at a time (seconds since 1970), a line each, for the log. Files
// that cannot be read have none.
std::vector<std::string> tls_warnings(const TlsFiles& files, int64_t now_s);

}  // namespace pf
