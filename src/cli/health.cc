#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdio>

#include "cli/client.h"
#include "cli/commands.h"
#include "cli/parse_value.h"
#include "proto/grpc/health/v1/health.grpc.pb.h"

namespace pf {
namespace {

struct HealthOptions {
  ClientOptions client{.target = "127.0.0.1:50051"};
  bool live = false;
};

int check_health(const HealthOptions& o) {
  namespace wire = grpc::health::v1;
  Result<int64_t> timeout = parse_duration_us(o.client.timeout);
  if (!timeout.ok()) return fail(timeout.status().within("--timeout"));
  if (Status s = check_target(o.client.target); !s.ok()) return fail(s);
  quiet_grpc();
  auto credentials = credentials_of(o.client);
  if (!credentials.ok()) return fail(credentials.status());
  auto stub = wire::Health::NewStub(grpc::CreateChannel(o.client.target, *credentials));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(*timeout));
  wire::HealthCheckRequest request;
  request.set_service(o.live ? "" : "pilotfish.v1.Inference");
  wire::HealthCheckResponse response;
  grpc::Status status = stub->Check(&context, request, &response);
  if (!status.ok()) {
    std::fprintf(stderr, "pilotfish: health: %s\n",
                 failure_of(status, o.client.target, "grpc.health.v1", "--listen").c_str());
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
  declare_client(command, &o->client);
  command->add_flag("--live", o->live, "Ask whether it lives, ready or not");
  command->callback([o, run] { *run = [o] { return check_health(*o); }; });
}

}  // namespace pf
