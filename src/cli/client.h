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

Result<std::shared_ptr<grpc::ChannelCredentials>> credentials_of(const ClientOptions& options);

// A file as text; "" for no path. The error names the flag.
Result<std::string> read_flag_file(const std::string& flag, const std::string& path);

}  // namespace pf
