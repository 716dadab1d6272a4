#include "server/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <prometheus/text_serializer.h>

#include <chrono>
#include <thread>

#include "base/files.h"
#include "server/engine_metrics.h"

namespace pf {
namespace {

constexpr const char* kReadyService = "pilotfish.v1.Inference";
constexpr int64_t kShutdownGrace_us = 2'000'000;  // for streams that are told SHUTDOWN
constexpr int64_t kHurriedGrace_us = 300'000;     // where the supervisor has lost patience
// Nothing is left to tell anyone, but the engine still holds calls: only a hang is worth dying for.
constexpr int64_t kEngineGrace_us = 20'000'000;

void configure(grpc::ServerBuilder* builder) {
  // A port that another process listens on is an error, not a port to share.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->SetMaxSendMessageSize(-1);
  // Nothing is compressed, and a compressed request is refused before it is inflated.
  builder->SetDefaultCompressionAlgorithm(GRPC_COMPRESS_NONE);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  // Dead peers are noticed; pings that come too often are refused.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
}

}  // namespace

Server::Server(const ServerOptions& options, const Clock& clock, Log& log)
    : options_(options),
      drain_timeout_us_(options.drain_timeout_us),
      metrics_(options.version, options.commit),
      state_(std::make_unique<ServerState>(clock, log, metrics_)),
      service_(*state_),
      admin_service_(*state_,
                     {.figures = [this] { return recent_figures(); },
                      .drain =
                          [this](std::optional<int64_t> timeout_us) {
                            if (timeout_us) drain_timeout_us_.store(*timeout_us);
                            set_not_serving();
                            drain_asked_.store(true);
                          },
                      .plan_memory = options.plan_memory},
                     options.version, options.commit),
      files_(options.files_period_us, log) {
  state_->slow_reader_us = options.slow_reader_us;
}

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, const Clock& clock,
                                              Log& log) {
  std::unique_ptr<Server> server(new Server(options, clock, log));
  if (Status s = server->open(); !s.ok()) return s;
  return server;
}

Status Server::open() {
  Result<std::shared_ptr<grpc::ServerCredentials>> credentials =
      server_credentials(options_.tls, &files_, &state_->log);
  if (!credentials.ok()) return credentials.status();
  credentials_ = credentials.take();
  if (Status s = read_tokens(); !s.ok()) return s;
  if (!options_.metrics_listen.empty()) {
    auto http = HttpEndpoint::start(options_.metrics_listen,
                                    [this](const std::string& path) { return answer_http(path); });
    if (!http.ok()) return http.status().within("--metrics-listen");
    http_ = http.take();
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  configure(&builder);
  if (options_.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  builder.AddListeningPort(options_.listen, credentials_, &port_);
  builder.RegisterService(&service_);
  grpc_ = builder.BuildAndStart();
  if (grpc_ == nullptr || port_ == 0)
    return Status(Code::kUnavailable,
                  "--listen: " + options_.listen +
                      " cannot be listened on: is the port in use, or no address of this machine? "
                      "choose another one");
  grpc_->GetHealthCheckService()->SetServingStatus(kReadyService, false);
  if (Status s = open_admin(); !s.ok()) return s;
  files_.start();
  SelfProbe::Options probe = options_.probe;
  probe.on_deaf = [this] {
    fail();
    state_->log.error("new connections are not answered any more");
    if (options_.probe.on_deaf) options_.probe.on_deaf();
  };
  probe_ = std::make_unique<SelfProbe>(options_.listen, port_, state_->handlers, probe);
  return {};
}

Status Server::read_tokens() {
  const std::string& path = options_.auth_token_file;
  if (path.empty()) return {};
  Result<std::string> text = read_whole_file(path, kMaxConfigurationBytes);
  if (!text.ok()) return text.status().within("--auth-token-file");
  Result<AuthTokens> tokens = AuthTokens::parse(*text, path);
  if (!tokens.ok()) return tokens.status();
  state_->auth.set(tokens.take());
  files_.add({.paths = {path},
              .texts = {text.take()},
              .take = [this, path](const std::vector<std::string>& texts) {
                Result<AuthTokens> changed = AuthTokens::parse(texts[0], path);
                if (!changed.ok()) return changed.status();
                const auto n = static_cast<int64_t>(changed->size());
                state_->auth.set(changed.take());
                state_->log.info("changed tokens are taken up", {{"file", path}, {"tokens", n}});
                return Status();
              }});
  return {};
}

Status Server::open_admin() {
  if (options_.admin_listen.empty()) return {};
  grpc::ServerBuilder builder;
  configure(&builder);
  builder.AddListeningPort(options_.admin_listen, credentials_, &admin_port_);
  builder.RegisterService(&admin_service_);
  admin_ = builder.BuildAndStart();
  if (admin_ != nullptr && admin_port_ != 0) return {};
  return Status(Code::kUnavailable,
                "--admin-listen: " + options_.admin_listen +
                    " cannot be listened on: is the port in use, or no address of this machine? "
                    "choose another one");
}

Server::~Server() {
  probe_.reset();
  if (admin_ != nullptr) {
    admin_->Shutdown(std::chrono::system_clock::now());
    admin_->Wait();
  }
  if (grpc_ != nullptr) {
    set_not_serving();
    grpc_->Shutdown(std::chrono::system_clock::now());
    grpc_->Wait();
  }
  state_->long_texts.stop();  // their clients are gone
  http_.reset();
  watch_.reset();
  if (state_->backing == nullptr) return;
  // The engine looks at the calls' cancel flags until it has let go of them.
  state_->backing->port.finish_all(FinishReason::kShutdown);
  check(state_->backing->dispatcher.wait_until_idle(kEngineGrace_us),
        "the engine does not end its requests");
  state_->backing.reset();
}

void Server::set_ready(ServedModel model, EnginePort engine) {
  state_->backing = std::make_unique<Backing>(std::move(model), std::move(engine), state_->clock,
                                              metrics_, state_->log);
  Watch::Options watch = options_.watch;
  watch.on_hang = [this](double age_s) {
    fail();
    state_->log.error("the engine hangs", {{"last_step_age_s", age_s}});
    if (options_.watch.on_hang) options_.watch.on_hang(age_s);
  };
  {
    std::lock_guard lock(watch_mutex_);
    watch_ = std::make_unique<Watch>(*state_, watch);
  }
  ServerState::Phase loading = ServerState::Phase::kLoading;
  if (state_->phase.compare_exchange_strong(loading, ServerState::Phase::kReady))
    grpc_->GetHealthCheckService()->SetServingStatus(kReadyService, true);
}

void Server::fail() {
  state_->failed.store(true);
  set_not_serving();
}

void Server::set_not_serving() {
  state_->phase.store(ServerState::Phase::kDraining);
  grpc_->GetHealthCheckService()->SetServingStatus(false);
}

bool Server::drain(const std::function<bool()>& hurry) {
  set_not_serving();
  int64_t now_us = state_->clock.now_us();
  if (wait_for_calls(now_us + drain_timeout_us_.load(), hurry)) return true;
  if (state_->backing == nullptr) return false;
  // Again at every look: a text that was being tokenised reaches the engine behind the first.
  state_->ending.store(true);
  auto wait_for_ends = [&](int64_t grace_us, const std::function<bool()>& enough) {
    wait_for_calls(state_->clock.now_us() + grace_us, [&] {
      state_->backing->port.finish_all(FinishReason::kShutdown);
      return enough();
    });
  };
  wait_for_ends(kShutdownGrace_us, hurry);
  if (hurry()) wait_for_ends(kHurriedGrace_us, [] { return false; });
  return false;
}

bool Server::wait_for_calls(int64_t until_us, const std::function<bool()>& hurry) {
  auto left = [&] {
    return state_->n_open.load() + state_->n_preparing.load() +
           (state_->backing ? state_->backing->dispatcher.n_in_flight() : 0);
  };
  while (left() > 0) {
    if (state_->clock.now_us() >= until_us || hurry()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::optional<RecentFigures> Server::recent_figures() {
  constexpr int64_t kRecent_us = 10'000'000;
  std::lock_guard lock(watch_mutex_);
  if (watch_ == nullptr) return std::nullopt;
  RecentFigures f;
  auto [at_us, before] = watch_->ago(kRecent_us);
  f.now = state_->backing->port.snapshot();
  f.before = before;
  f.seconds = 1e-6 * static_cast<double>(state_->clock.now_us() - at_us);
  f.age_us = watch_->age_us();
  return f;
}

std::string Server::metrics_text() {
  std::vector<prometheus::MetricFamily> families = metrics_.registry().Collect();
  std::lock_guard lock(watch_mutex_);
  if (watch_ != nullptr) {
    const Backing& b = *state_->backing;
    for (auto& f :
         engine_metrics(b.port.snapshot(), watch_->minute_ago(), b.model.info, watch_->age_us()))
      families.push_back(std::move(f));
  }
  return prometheus::TextSerializer().Serialize(families);
}

HttpEndpoint::Reply Server::answer_http(const std::string& path) {
  const char* text = "text/plain; charset=utf-8";
  if (path == "/metrics") return {200, "text/plain; version=0.0.4; charset=utf-8", metrics_text()};
  if (path == "/healthz") return {200, text, "ok\n"};
  if (path == "/readyz") {
    switch (state_->phase.load()) {
      case ServerState::Phase::kReady:
        return {200, text, "ready\n"};
      case ServerState::Phase::kLoading:
        return {503, text, "loading\n"};
      case ServerState::Phase::kDraining:
        return {503, text, "draining\n"};
    }
  }
  if (path == "/version")
    return {200, "application/json",
            R"({"version":")" + options_.version + R"(","commit":")" + options_.commit + "\"}\n"};
  return {404, text, "no such page; there are /metrics /healthz /readyz /version\n"};
}

}  // namespace pf
