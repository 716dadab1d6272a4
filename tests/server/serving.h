#pragma once

#include <arpa/inet.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "proto/pilotfish/v1/inference.grpc.pb.h"
#include "server/fake_engine.h"
#include "server/server.h"
#include "server/small_model.h"

namespace pf {

using namespace std::chrono_literals;

// Failed handshakes and busy ports are asked for here; gRPC need not say so.
inline const bool grpc_is_quiet = (gpr_set_log_function([](gpr_log_func_args*) {}), true);

inline bool until(const std::function<bool()>& condition, std::chrono::milliseconds time = 5s) {
  auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return condition();
}

// A socket that listens and never accepts: with its queue kept full by who asks, nobody answers a
// new connection. (A server in this process would be answered for by the client's own threads.)
struct SilentPort {
  SilentPort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd, 1), 0);
    socklen_t size = sizeof(address);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  ~SilentPort() { close(fd); }
  SilentPort(const SilentPort&) = delete;

  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  int port = 0;
};

// A server on a free port, a scripted engine behind it, and a client.
class Serving : public testing::Test {
 protected:
  Serving() = default;
  explicit Serving(int64_t now_us) : clock(now_us) {}  // the server's clock then goes by hand

  void start(ServerOptions options = {}, bool ready = true) {
    options.listen = "127.0.0.1:0";
    if (options.metrics_listen == ServerOptions().metrics_listen) options.metrics_listen = "";
    options.watch.tick_us = 10'000;
    Result<std::unique_ptr<Server>> started = Server::start(options, clock, log);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server = started.take();
    if (ready) server->set_ready(small_model(), port_of(engine));
    channel = grpc::CreateChannel("ipv4:127.0.0.1:" + std::to_string(server->port()),
                                  grpc::InsecureChannelCredentials());
    stub = wire::Inference::NewStub(channel);
  }
  void TearDown() override {
    engine.running = true;
    server.reset();
  }

  static wire::GenerateRequest request(uint32_t max_new_tokens = 5) {
    wire::GenerateRequest r;
    r.set_text("hi");
    r.mutable_stopping()->set_max_new_tokens(max_new_tokens);
    return r;
  }
  static wire::GenerateRequest endless() { return request(1'000'000); }

  grpc::Status generate(const wire::GenerateRequest& r, wire::GenerateResponse* response = nullptr,
                        grpc::ClientContext* context = nullptr) {
    wire::GenerateResponse unused;
    grpc::ClientContext plain;
    return stub->Generate(context ? context : &plain, r, response ? response : &unused);
  }
  std::vector<wire::GenerateChunk> stream(const wire::GenerateRequest& r, grpc::Status* status) {
    grpc::ClientContext context;
    auto reader = stub->GenerateStream(&context, r);
    std::vector<wire::GenerateChunk> chunks;
    for (wire::GenerateChunk chunk; reader->Read(&chunk);) chunks.push_back(chunk);
    *status = reader->Finish();
    return chunks;
  }
  // As a client without a connection of its own sees it.
  int health(const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest r;
    r.set_service(service);
    grpc::health::v1::HealthCheckResponse response;
    grpc::Status s = grpc::health::v1::Health::NewStub(channel)->Check(&context, r, &response);
    return s.ok() ? static_cast<int>(response.status()) : -1;
  }

  Clock clock;
  std::ostringstream log_text;
  Log log{Log::Format::kText, "info", std::make_shared<spdlog::sinks::ostream_sink_mt>(log_text)};
  FakeEngine engine{4, 1 << 20, &clock};
  std::unique_ptr<Server> server;  // goes before the engine
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<wire::Inference::Stub> stub;
};

}  // namespace pf
