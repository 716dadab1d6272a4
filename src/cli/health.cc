#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "cli/commands.h"
#include "cli/parse_value.h"
#include "proto/grpc/health/v1/health.grpc.pb.h"

namespace pf {
namespace {

struct HealthOptions {
  std::string target = "127.0.0.1:50051";
  std::string timeout = "2s";
  bool live = false;
  std::string tls_ca, tls_cert, tls_key;
};

Result<std::string> read_file(const std::string& flag, const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  if (!path.empty() && (!in || !(text << in.rdbuf())))
    return invalid(flag + " " + path + " cannot be read");
  return text.str();
}

Result<std::shared_ptr<grpc::ChannelCredentials>> credentials_of(const HealthOptions& o) {
  if (o.tls_ca.empty()) {
    if (o.tls_cert.empty() && o.tls_key.empty()) return grpc::InsecureChannelCredentials();
    return invalid("--tls-cert and --tls-key need --tls-ca, the authority of the server");
  }
  grpc::SslCredentialsOptions ssl;
  for (auto [flag, path, to] : {std::tuple{"--tls-ca", &o.tls_ca, &ssl.pem_root_certs},
                                std::tuple{"--tls-cert", &o.tls_cert, &ssl.pem_cert_chain},
                                std::tuple{"--tls-key", &o.tls_key, &ssl.pem_private_key}}) {
    Result<std::string> text = read_file(flag, *path);
    if (!text.ok()) return text.status();
    *to = text.take();
  }
  return grpc::SslCredentials(ssl);
}

int check_health(const HealthOptions& o) {
  namespace wire = grpc::health::v1;
  Result<int64_t> timeout = parse_duration_us(o.timeout);
  if (!timeout.ok()) return fail(timeout.status().within("--timeout"));
  auto credentials = credentials_of(o);
  if (!credentials.ok()) return fail(credentials.status());
  auto stub = wire::Health::NewStub(grpc::CreateChannel(o.target, *credentials));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(*timeout));
  wire::HealthCheckRequest request;
  request.set_service(o.live ? "" : "pilotfish.v1.Inference");
  wire::HealthCheckResponse response;
  grpc::Status status = stub->Check(&context, request, &response);
  if (!status.ok()) {
    std::fprintf(stderr, "pilotfish: health: %s does not answer: %s\n", o.target.c_str(),
                 status.error_message().c_str());
    return kCheckSaidNo;
  }
  bool serving = response.status() == wire::HealthCheckResponse::SERVING;
  std::puts(wire::HealthCheckResponse::ServingStatus_Name(response.status()).c_str());
  return serving ? kOk : kCheckSaidNo;
}

}  // namespace

void declare_health(CLI::App* app, Run* run) {
  CLI::App* command =
      app->add_subcommand("health", "Ask a server whether it is ready; exit 0 when it is, else 1");
  auto o = std::make_shared<HealthOptions>();
  command->add_option("--target", o->target, "The server [127.0.0.1:50051]")
      ->type_name("HOST:PORT");
  command->add_option("--timeout", o->timeout, "How long to wait [2s]")->type_name("TIME");
  command->add_flag("--live", o->live, "Ask whether it lives, ready or not");
  command->add_option("--tls-ca", o->tls_ca, "Use TLS and trust this authority (PEM)")
      ->type_name("FILE");
  command->add_option("--tls-cert", o->tls_cert, "Certificate to show (PEM)")->type_name("FILE");
  command->add_option("--tls-key", o->tls_key, "Its private key (PEM)")->type_name("FILE");
  command->callback([o, run] { *run = [o] { return check_health(*o); }; });
}

}  // namespace pf
