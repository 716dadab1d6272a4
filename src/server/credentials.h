#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "base/status.h"
#include "server/changing_files.h"
#include "server/log.h"
#include "server/tls_identity.h"

namespace pf {

// Plain credentials without files. With files, each new connection is greeted with the last texts
// of them that fit together: changed ones are taken up without a restart, and one that cannot be
// used, or only half of a pair, changes nothing. Errors name the flag and the file. The credentials
// must outlive the servers that they are given to; `log` and `changing` go together.
Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files,
                                                                    ChangingFiles* changing,
                                                                    Log* log);

}  // namespace pf
