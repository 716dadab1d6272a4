#include "cli/client.h"

#include "base/files.h"

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
  grpc::SslCredentialsOptions ssl;
  for (auto [flag, path, to] : {std::tuple{"--tls-ca", &o.tls_ca, &ssl.pem_root_certs},
                                std::tuple{"--tls-cert", &o.tls_cert, &ssl.pem_cert_chain},
                                std::tuple{"--tls-key", &o.tls_key, &ssl.pem_private_key}}) {
    Result<std::string> text = read_flag_file(flag, *path);
    if (!text.ok()) return text.status();
    *to = text.take();
  }
  return grpc::SslCredentials(ssl);
}

}  // namespace pf
