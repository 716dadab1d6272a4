#include "cli/client.h"

#include <grpc/support/log.h>

#include <cstdlib>

#include "base/files.h"
#include "cli/parse_value.h"
#include "server/tls_identity.h"

namespace pf {

void declare_client(CLI::App* command, ClientOptions* o) {
  command->add_option("--target", o->target, "The server [" + o->target + "]")
      ->type_name("HOST:PORT");
  command->add_option("--timeout", o->timeout, "How long to wait [" + o->timeout + "]")
      ->type_name("TIME");
  command->add_option("--tls-ca", o->tls_ca, "Use TLS and trust this authority (PEM)")
      ->type_name("FILE");
  command->add_option("--tls-cert", o->tls_cert, "Certificate to show (PEM)")->type_name("FILE");
  command->add_option("--tls-key", o->tls_key, "Its private key (PEM)")->type_name("FILE");
}

Result<std::string> read_flag_file(const std::string& flag, const std::string& path) {
  if (path.empty()) return std::string();
  Result<std::string> text = read_whole_file(path, kMaxConfigurationBytes);
  return text.ok() ? std::move(text) : text.status().within(flag);
}

Result<std::shared_ptr<grpc::ChannelCredentials>> credentials_of(const ClientOptions& o) {
  if (o.tls_ca.empty()) {
    if (o.tls_cert.empty() && o.tls_key.empty()) return grpc::InsecureChannelCredentials();
    return invalid("--tls-cert and --tls-key need --tls-ca, the authority of the server");
  }
  if (o.tls_cert.empty() != o.tls_key.empty())
    return invalid("--tls-cert and --tls-key belong together; give both or none");
  grpc::SslCredentialsOptions ssl;
  for (auto [flag, path, to] : {std::tuple{"--tls-ca", &o.tls_ca, &ssl.pem_root_certs},
                                std::tuple{"--tls-cert", &o.tls_cert, &ssl.pem_cert_chain},
                                std::tuple{"--tls-key", &o.tls_key, &ssl.pem_private_key}}) {
    Result<std::string> text = read_flag_file(flag, *path);
    if (!text.ok()) return text.status();
    *to = text.take();
  }
  Status s = check_certificates("--tls-ca", o.tls_ca, ssl.pem_root_certs);
  if (s.ok() && !o.tls_cert.empty())
    s = check_tls({o.tls_cert, o.tls_key, ""}, {ssl.pem_cert_chain, ssl.pem_private_key, ""});
  if (!s.ok()) return s;
  return grpc::SslCredentials(ssl);
}

Status check_target(const std::string& target) {
  for (const char* scheme : {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:"})
    if (target.starts_with(scheme) && target.size() > std::string(scheme).size()) return {};
  return check_address(target).within("--target " + target);
}

std::string failure_of(const grpc::Status& status, const std::string& target,
                       const std::string& service, const std::string& where) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAUTHENTICATED:
      return target + " wants a bearer token; give it with --auth-token-file";
    case grpc::StatusCode::PERMISSION_DENIED:
      return target + " does not let in the token of --auth-token-file; has it been replaced?";
    case grpc::StatusCode::UNIMPLEMENTED:
    case grpc::StatusCode::NOT_FOUND:  // of the health service, for a service it does not know
      return target + " answers, but has no " + service + "; is it the server's " + where + "?";
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return target + " does not answer in time; is it the server's " + where +
             ", and is --timeout long enough?";
    default: {
      const std::string& why = status.error_message();
      return target + " does not answer: " + (why.empty() ? "no reason was given" : why) +
             "; is it the server's " + where + ", and does it use TLS (--tls-ca)?";
    }
  }
}

void quiet_grpc() {
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace pf
