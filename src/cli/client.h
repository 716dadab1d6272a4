#pragma once

#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/status.h"

namespace pf {

// Where a subcommand that asks a running server connects, and what it shows there.
struct ClientOptions {
  std::string target;
  std::string timeout = "2s";
  std::string tls_ca = {}, tls_cert = {}, tls_key = {};
};

// Adds the options to a subcommand; `target` is the default.
void declare_client(CLI::App* command, ClientOptions* options);

// INVALID_ARGUMENT names the flag and the file, also of certificates and keys that gRPC could not
// use.
Result<std::shared_ptr<grpc::ChannelCredentials>> credentials_of(const ClientOptions& options);

// Whether gRPC could connect there: HOST:PORT, or a target with its scheme such as unix:PATH.
Status check_target(const std::string& target);

// Why a call failed, in words for a terminal, and what to do about it. `service` is what was asked
// for, `where` the flag by which the server says where it listens.
std::string failure_of(const grpc::Status& status, const std::string& target,
                       const std::string& service, const std::string& where);

// gRPC's own words go to stderr only when GRPC_VERBOSITY asks for them: what matters of them is
// said by this program.
void quiet_grpc();

// A file as text; "" for no path. The error names the flag.
Result<std::string> read_flag_file(const std::string& flag, const std::string& path);

}  // namespace pf
