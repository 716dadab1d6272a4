#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "engine/memory_figures.h"
#include "proto/pilotfish/v1/admin.grpc.pb.h"
#include "server/server_state.h"

namespace pf {

// The engine's figures now and some seconds ago.
struct RecentFigures {
  Snapshot now, before;
  double seconds = 0;  // between them
  int64_t age_us = 0;  // since the last step, while calls wait
};

// What the service asks of the server around it. Any thread may call them.
struct AdminHooks {
  std::function<std::optional<RecentFigures>()> figures;  // nothing while the model loads
  // As SIGTERM; with a time, that instead of --drain-timeout.
  std::function<void(std::optional<int64_t> timeout_us)> drain;
  // The plan for the running server's options with these over them, by names of the command line.
  std::function<Result<MemoryFigures>(const std::map<std::string, std::string>&)> plan_memory;
};

// pilotfish.v1.Admin: for operators, on an address of its own. Whoever may call it may end every
// request, so it takes the same certificates and tokens as the data port.
class AdminService final : public pilotfish::v1::Admin::CallbackService {
 public:
  AdminService(ServerState& state, AdminHooks hooks, std::string version, std::string commit);

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const pilotfish::v1::GetServerInfoRequest* request,
                                          pilotfish::v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const pilotfish::v1::AbortRequest* request,
                                  pilotfish::v1::AbortResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const pilotfish::v1::DrainRequest* request,
                                  pilotfish::v1::DrainResponse* response) override;
  grpc::ServerUnaryReactor* PlanMemory(grpc::CallbackServerContext* context,
                                       const pilotfish::v1::PlanMemoryRequest* request,
                                       pilotfish::v1::MemoryPlan* response) override;
  grpc::ServerUnaryReactor* SetPolicy(grpc::CallbackServerContext* context,
                                      const pilotfish::v1::Policy* request,
                                      pilotfish::v1::Policy* response) override;

 private:
  void fill(pilotfish::v1::ServerInfo* info) const;

  ServerState& state_;
  const AdminHooks hooks_;
  const std::string version_, commit_;
  const int64_t began_us_;
};

}  // namespace pf
