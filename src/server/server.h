#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/admin_service.h"
#include "server/changing_files.h"
#include "server/credentials.h"
#include "server/http_endpoint.h"
#include "server/inference_service.h"
#include "server/self_probe.h"
#include "server/watch.h"

namespace pf {

struct ServerOptions {
  std::string listen = "127.0.0.1:50051";
  std::string metrics_listen = "127.0.0.1:9464";  // empty: off
  std::string admin_listen;                       // empty: off
  TlsFiles tls;
  std::string auth_token_file;
  int64_t files_period_us = 1'000'000;  // between two looks at the files of tls and tokens
  bool reflection = true;
  int64_t drain_timeout_us = 30'000'000;
  int64_t slow_reader_us = 30'000'000;
  std::string version, commit;
  Watch::Options watch;      // on_hang is called after health has turned
  SelfProbe::Options probe;  // so is on_deaf
  // For Admin.PlanMemory; see AdminHooks.
  std::function<Result<MemoryFigures>(const std::map<std::string, std::string>&)> plan_memory;
};

// The gRPC server and the endpoint for operators. The ports are open from start() on; calls get
// UNAVAILABLE until set_ready and again from drain on. Methods are for one thread, but for
// set_not_serving.
class Server {
 public:
  // Errors name the flag: a port in use, a file that cannot be read. All must outlive the server.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options, const Clock& clock,
                                               Log& log);
  // Ends what is still in flight with SHUTDOWN.
  ~Server();

  int port() const { return port_; }
  int metrics_port() const { return http_ ? http_->port() : 0; }
  int admin_port() const { return admin_port_; }

  // The engine behind `engine` must outlive the server. Once.
  void set_ready(ServedModel model, EnginePort engine);

  // Health says NOT_SERVING from now on, whatever comes. Any thread.
  void set_not_serving();

  // Looks at once whether certificates or tokens have changed, as SIGHUP asks. Any thread.
  void reread_files() { files_.look_now(); }

  // An operator has asked for an end by Admin.Drain: health has turned, drain() is due. Any thread.
  bool drain_asked() const { return drain_asked_.load(); }

  // NOT_SERVING and UNAVAILABLE at once; then waits for the calls in flight. Those that are not
  // done within the drain timeout, or when `hurry` turns true, end with SHUTDOWN. True: all ended
  // in time by themselves.
  bool drain(const std::function<bool()>& hurry);

  ServerState& state() { return *state_; }

 private:
  Server(const ServerOptions& options, const Clock& clock, Log& log);
  Status open();
  Status open_admin();
  Status read_tokens();
  std::optional<RecentFigures> recent_figures();
  void fail();
  HttpEndpoint::Reply answer_http(const std::string& path);
  std::string metrics_text();
  bool wait_for_calls(int64_t until_us, const std::function<bool()>& hurry);

  const ServerOptions options_;
  std::atomic<bool> drain_asked_{false};
  std::atomic<int64_t> drain_timeout_us_;
  Metrics metrics_;
  std::unique_ptr<ServerState> state_;
  InferenceService service_;
  AdminService admin_service_;
  std::unique_ptr<Watch> watch_;
  std::mutex watch_mutex_;  // guards the pointer watch_
  int port_ = 0;
  int admin_port_ = 0;
  ChangingFiles files_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // outlives the servers
  std::unique_ptr<grpc::Server> grpc_, admin_;
  std::unique_ptr<SelfProbe> probe_;
  std::unique_ptr<HttpEndpoint> http_;
};

}  // namespace pf
