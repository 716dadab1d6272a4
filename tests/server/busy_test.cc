// Truth: the contract of self_probe.h and text_workers.h: calls that take long hold up nobody else,
// and a busy port is not a deaf one.
#include <atomic>
#include <optional>
#include <thread>

#include "server/self_probe.h"
#include "server/serving.h"

namespace pf {
namespace {

using grpc::StatusCode;

class DeafPort : public testing::Test {
 protected:
  SelfProbe::Options options(int64_t stuck_us) {
    return {.period_us = 1000,
            .timeout_ms = 20,
            .most_failures = 3,
            .stuck_us = stuck_us,
            .on_deaf = [this] { deaf = true; }};
  }

  const SilentPort silent;
  const int port = silent.port;
  Handlers handlers;
  std::atomic<bool> deaf{false};
};

TEST_F(DeafPort, IsNotCalledDeafWhileCallsHoldItAndEnd) {
  std::optional<Handlers::Inside> one(std::in_place, handlers), other;
  SelfProbe probe("127.0.0.1:0", port, handlers, options(60'000'000));
  for (int i = 0; i < 20; ++i) {  // never none inside, and one after the other ends
    other.emplace(handlers);
    one.reset();
    std::this_thread::sleep_for(15ms);
    one.emplace(handlers);
    other.reset();
    std::this_thread::sleep_for(15ms);
  }
  EXPECT_FALSE(deaf);
  one.reset();
  EXPECT_TRUE(until([&] { return deaf.load(); })) << "idle, and nobody answers";
}

TEST_F(DeafPort, CallsThatDoNotEndAreNoExcuse) {
  Handlers::Inside inside(handlers);
  SelfProbe probe("127.0.0.1:0", port, handlers, options(200'000));
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(deaf);
  EXPECT_TRUE(until([&] { return deaf.load(); }));
}

TEST_F(DeafPort, IsFoundBetweenShortCalls) {
  SelfProbe probe("127.0.0.1:0", port, handlers, options(60'000'000));
  EXPECT_TRUE(until([&] {
    Handlers::Inside inside(handlers);  // old connections that are served
    return deaf.load();
  }));
}

// One byte more than what is tokenised at once.
std::string long_text() { return std::string(kLongTextBytes + 1, 'a'); }

// The workers for long texts, held until the end of the test.
class ServingLongTexts : public Serving {
 protected:
  void start_held(ServerOptions options = {}) {
    start(options, false);
    server->set_ready(small_model(1 << 20), port_of(engine));
    while (n_held.load() < 4) {  // as many as there are at most
      if (!server->state().long_texts.post([this] {
            ++n_held;
            while (held.load()) std::this_thread::sleep_for(1ms);
          }))
        break;
      if (until([&, n = ++n_posted] { return n_held.load() == n; }, 200ms)) continue;
      break;  // this one waits: all are held
    }
  }
  void TearDown() override {
    held = false;
    Serving::TearDown();
  }
  static wire::GenerateRequest long_request() {
    wire::GenerateRequest r = request();
    r.set_text(long_text());
    return r;
  }
  std::atomic<bool> held{true};
  std::atomic<int> n_held{0};
  int n_posted = 0;
};

TEST_F(ServingLongTexts, OthersAreAnsweredMeanwhile) {
  start_held();
  wire::TokenizeRequest tokenize;
  tokenize.set_text(long_text());
  wire::TokenizeResponse tokens;
  wire::GenerateResponse answer;
  grpc::Status generated, tokenized;
  std::thread first([&] { generated = generate(long_request(), &answer); });
  std::thread second([&] {
    grpc::ClientContext context;
    tokenized = stub->Tokenize(&context, tokenize, &tokens);
  });
  EXPECT_TRUE(until([&] { return server->state().n_open.load() == 2; }));
  EXPECT_TRUE(generate(request()).ok());
  EXPECT_EQ(health("pilotfish.v1.Inference"), 1);
  EXPECT_EQ(engine.n_submitted.load(), 1);
  held = false;
  first.join();
  second.join();
  EXPECT_TRUE(generated.ok()) << generated.error_message();
  EXPECT_EQ(answer.prompt().num_prompt_tokens(), kLongTextBytes + 1);
  EXPECT_EQ(answer.completions(0).text(), "abcde");
  EXPECT_TRUE(tokenized.ok());
  EXPECT_EQ(tokens.ids_size(), kLongTextBytes + 1);
}

TEST_F(ServingLongTexts, WaitingOnesKeepToTheirDeadlineAndMayLeave) {
  start_held();
  grpc::ClientContext late;
  late.set_deadline(std::chrono::system_clock::now() + 100ms);
  EXPECT_EQ(generate(long_request(), nullptr, &late).error_code(), StatusCode::DEADLINE_EXCEEDED);
  grpc::ClientContext leaves;
  auto reader = stub->GenerateStream(&leaves, long_request());
  EXPECT_TRUE(until([&] { return server->state().n_open.load() == 1; }));
  leaves.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(until([&] { return server->state().n_open.load() == 0; }));
  held = false;
  EXPECT_TRUE(generate(long_request()).ok());
  EXPECT_EQ(engine.n_submitted.load(), 1) << "what nobody waits for costs the engine nothing";
  EXPECT_TRUE(until([&] { return server->state().n_preparing.load() == 0; }));
}

// R8: those that wait for their turn hear that the server shuts down, and the engine never of them.
TEST_F(ServingLongTexts, WaitingOnesAreToldWhenADrainIsOver) {
  ServerOptions options;
  options.drain_timeout_us = 50'000;
  start_held(options);
  grpc::Status generated, tokenized;
  std::thread first([&] { generated = generate(long_request()); });
  std::thread second([&] {
    wire::TokenizeRequest tokenize;
    tokenize.set_text(long_text());
    wire::TokenizeResponse tokens;
    grpc::ClientContext context;
    tokenized = stub->Tokenize(&context, tokenize, &tokens);
  });
  EXPECT_TRUE(until([&] { return server->state().n_open.load() == 2; }));
  std::thread drain([&] { EXPECT_FALSE(server->drain([] { return false; })); });
  EXPECT_TRUE(until([&] { return server->state().ending.load(); }));
  held = false;
  first.join();
  second.join();
  drain.join();
  EXPECT_EQ(generated.error_code(), StatusCode::UNAVAILABLE) << generated.error_message();
  EXPECT_EQ(tokenized.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_NE(generated.error_message().find("shutting down"), std::string::npos);
  EXPECT_EQ(engine.n_submitted.load(), 0);
  EXPECT_EQ(server->state().n_open.load(), 0);
}

TEST_F(ServingLongTexts, TooManyAreRefusedAtOnce) {
  start_held();
  while (server->state().long_texts.post([] {})) {
  }
  wire::TokenizeRequest tokenize;
  tokenize.set_text(long_text());
  wire::TokenizeResponse tokens;
  grpc::ClientContext context;
  EXPECT_EQ(stub->Tokenize(&context, tokenize, &tokens).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  grpc::ClientContext pushed;
  EXPECT_EQ(generate(long_request(), nullptr, &pushed).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(pushed.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1u);
  grpc::Status status;
  stream(long_request(), &status);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(generate(request()).ok());
}

}  // namespace
}  // namespace pf
