// Truth: admin.proto. What operators see and may do, and what they are refused.
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "proto/pilotfish/v1/admin.grpc.pb.h"
#include "server/admin_policy.h"
#include "server/serving.h"

namespace pf {
namespace {

namespace admin = pilotfish::v1;

class Operating : public Serving {
 protected:
  void open(ServerOptions options = {}, bool ready = true) {
    options.admin_listen = "127.0.0.1:0";
    options.version = "1.2.3";
    options.commit = "abc";
    start(options, ready);
    operators = admin::Admin::NewStub(
        grpc::CreateChannel("ipv4:127.0.0.1:" + std::to_string(server->admin_port()),
                            grpc::InsecureChannelCredentials()));
  }
  admin::ServerInfo info() {
    grpc::ClientContext context;
    admin::ServerInfo response;
    EXPECT_TRUE(operators->GetServerInfo(&context, {}, &response).ok());
    return response;
  }
  grpc::Status set(const admin::Policy& wanted, admin::Policy* now = nullptr) {
    grpc::ClientContext context;
    admin::Policy unused;
    return operators->SetPolicy(&context, wanted, now ? now : &unused);
  }
  grpc::Status abort(const std::string& id) {
    grpc::ClientContext context;
    admin::AbortRequest request;
    request.set_request_id(id);
    admin::AbortResponse response;
    return operators->Abort(&context, request, &response);
  }
  grpc::Status plan(const std::map<std::string, std::string>& flags, admin::MemoryPlan* response) {
    grpc::ClientContext context;
    admin::PlanMemoryRequest request;
    request.mutable_flags()->insert(flags.begin(), flags.end());
    return operators->PlanMemory(&context, request, response);
  }
  std::unique_ptr<admin::Admin::Stub> operators;
};

TEST_F(Operating, OffByDefaultAndNeverOnTheDataPort) {
  start();
  EXPECT_EQ(server->admin_port(), 0);
  grpc::ClientContext context;
  admin::ServerInfo response;
  grpc::Status s = admin::Admin::NewStub(channel)->GetServerInfo(&context, {}, &response);
  EXPECT_EQ(s.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(Operating, InfoFollowsThePhase) {
  open({}, false);
  EXPECT_EQ(info().state(), "loading");
  EXPECT_EQ(set({}).error_code(), grpc::StatusCode::UNAVAILABLE);
  ServedModel model = small_model();
  model.info.memory = {.parts = {{"weights", 70}, {"KV cache", 30}},
                       .device_bytes = 1000,
                       .max_context = 64,
                       .n_full_sequences = 3,
                       .kv_bytes_per_token = 2};
  server->set_ready(std::move(model), port_of(engine));
  engine.waiting = 2;
  admin::ServerInfo i = info();
  EXPECT_EQ(i.state(), "ready");
  EXPECT_EQ(i.version(), "1.2.3");
  EXPECT_EQ(i.commit(), "abc");
  EXPECT_EQ(i.waiting(), 2u);
  EXPECT_EQ(i.alpha(), 1);
  EXPECT_EQ(i.memory().total_bytes(), 100u);
  EXPECT_EQ(i.memory().device_bytes(), 1000u);
  EXPECT_TRUE(i.memory().fits());
  EXPECT_EQ(i.memory().max_concurrent_at_max_context(), 3u);
  ASSERT_EQ(i.memory().parts_size(), 2);
  EXPECT_EQ(i.memory().parts(1).name(), "KV cache");
  server->set_not_serving();
  EXPECT_EQ(info().state(), "draining");
}

// Since the server became ready: 100 nodes in 20 drafts, 50 of them kept in 25 rounds.
TEST_F(Operating, RatesAreOfTheLastSeconds) {
  engine.change([](Snapshot* s) {
    s->n_generated_tokens = 1000, s->n_drafted = 10, s->speedup = {5, 3};
  });
  open();
  engine.change([](Snapshot* s) {
    s->n_generated_tokens += 75, s->n_rounds += 25, s->n_drafted += 100, s->n_accepted += 50;
    s->n_draft_rounds += 20, s->speedup = {22, 13}, s->utilisation = 42, s->kv_blocks_total = 8;
  });
  admin::ServerInfo i = info();
  EXPECT_GT(i.tokens_per_second(), 75 / 10.0) << "of less than the ten seconds that are looked at";
  EXPECT_DOUBLE_EQ(i.acceptance_rate(), 0.5);
  EXPECT_DOUBLE_EQ(i.accepted_length(), 3);
  EXPECT_DOUBLE_EQ(i.draft_length(), 5);
  EXPECT_DOUBLE_EQ(i.speedup(), 1.7);
  EXPECT_DOUBLE_EQ(i.utilisation(), 42);
  EXPECT_EQ(i.kv_blocks_total(), 8u);
}

TEST_F(Operating, AbortEndsACallWithWhatThereIs) {
  open();
  EXPECT_EQ(abort("nobody").error_code(), grpc::StatusCode::NOT_FOUND);
  wire::GenerateRequest r = endless();
  r.set_request_id("long-one");
  grpc::Status status;
  wire::GenerateResponse response;
  std::thread client([&] { status = generate(r, &response); });
  ASSERT_TRUE(until([&] { return engine.n_live() == 1; }));
  EXPECT_TRUE(abort("long-one").ok());
  client.join();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.completions(0).finish().reason(), wire::Finish::ABORTED);
  EXPECT_TRUE(until([&] { return engine.n_live() == 0; }));
  EXPECT_EQ(abort("long-one").error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(Operating, DrainIsAnEndAsBySignal) {
  ServerOptions options;
  options.drain_timeout_us = 3'600'000'000;
  open(options);
  wire::GenerateRequest r = endless();
  grpc::Status status;
  wire::GenerateResponse response;
  std::thread client([&] { status = generate(r, &response); });
  ASSERT_TRUE(until([&] { return engine.n_live() == 1; }));
  EXPECT_FALSE(server->drain_asked());
  grpc::ClientContext context;
  admin::DrainRequest request;
  request.set_timeout_ms(50);
  admin::DrainResponse left;
  ASSERT_TRUE(operators->Drain(&context, request, &left).ok());
  EXPECT_EQ(left.running(), 1u);
  EXPECT_TRUE(server->drain_asked());
  EXPECT_EQ(info().state(), "draining");
  EXPECT_EQ(generate(Serving::request()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(server->drain([] { return false; })) << "within its own 50 ms, not the hour";
  client.join();
  EXPECT_EQ(response.completions(0).finish().reason(), wire::Finish::SHUTDOWN);
}

TEST_F(Operating, APolicyIsSetPieceByPiece) {
  open();
  admin::Policy wanted, now;
  wanted.set_alpha(0.7f);
  ASSERT_TRUE(set(wanted, &now).ok());
  EXPECT_FLOAT_EQ(now.alpha(), 0.7f);
  EXPECT_FALSE(now.dynamic_alpha());
  EXPECT_TRUE(now.speculation());
  EXPECT_EQ(now.num_draft_tokens(), 5u);
  EXPECT_EQ(now.draft_length(), "fixed");
  EXPECT_EQ(now.drafters_size(), 2);
  EXPECT_EQ(engine.policy().pinned_alpha, 0.7f);
  wanted.Clear();
  wanted.set_dynamic_alpha(true);
  wanted.set_draft_length("adaptive");
  wanted.set_num_draft_tokens(3);
  wanted.add_drafters("model");
  wanted.set_speculation(false);
  ASSERT_TRUE(set(wanted, &now).ok());
  EXPECT_TRUE(now.dynamic_alpha());
  EXPECT_FALSE(now.has_alpha());
  EXPECT_EQ(engine.policy().pinned_alpha, std::nullopt);
  EXPECT_EQ(engine.policy().draft_length, LengthRule::kAdaptive);
  EXPECT_EQ(engine.policy().num_draft_tokens, 3);
  EXPECT_EQ(engine.policy().drafters, std::vector<std::string>{"model"});
  EXPECT_FALSE(engine.policy().speculation);
  ASSERT_TRUE(set({}, &now).ok());
  EXPECT_EQ(now.draft_length(), "adaptive") << "what is not set stays";
}

TEST(AdminPolicy, ABadFieldIsNamedAndNothingChanges) {
  EngineInfo info = small_model().info;
  EnginePolicy policy;
  policy.num_draft_tokens = 5;
  auto refused = [&](const char* field, const std::function<void(admin::Policy*)>& edit) {
    admin::Policy wanted;
    wanted.set_speculation(false);
    edit(&wanted);
    Status s = change_policy(wanted, info, &policy);
    EXPECT_EQ(s.code(), Code::kInvalidArgument) << field;
    EXPECT_NE(s.message().find(field), std::string::npos) << s.message();
    EXPECT_TRUE(policy.speculation);
  };
  for (float alpha : {0.0f, -1.0f, 1.01f, NAN, INFINITY})
    refused("alpha", [&](admin::Policy* p) { p->set_alpha(alpha); });
  refused("dynamic_alpha",
          [](admin::Policy* p) { p->set_alpha(0.5f), p->set_dynamic_alpha(true); });
  refused("draft_length", [](admin::Policy* p) { p->set_draft_length("longer"); });
  refused("num_draft_tokens", [](admin::Policy* p) { p->set_num_draft_tokens(17); });
  refused("num_draft_tokens", [](admin::Policy* p) { p->set_num_draft_tokens(~0u); });
  refused("drafters", [](admin::Policy* p) { p->add_drafters("oracle"); });
  refused("drafters", [](admin::Policy* p) { p->add_drafters("ngram"), p->add_drafters("ngram"); });
}

TEST_F(Operating, AMemoryPlanIsTheLoadersAnswer) {
  open();
  admin::MemoryPlan response;
  EXPECT_EQ(plan({}, &response).error_code(), grpc::StatusCode::UNIMPLEMENTED);
  server.reset();
  ServerOptions options;
  options.plan_memory = [](const std::map<std::string, std::string>& flags) {
    if (flags.contains("kv-blocks"))
      return Result<MemoryFigures>(invalid("flags: kv-blocks: needs a whole number"));
    return Result<MemoryFigures>(
        MemoryFigures{.parts = {{"weights", 5}}, .fits = flags.at("max-model-len") != "128K"});
  };
  open(options);
  ASSERT_TRUE(plan({{"max-model-len", "128K"}}, &response).ok());
  EXPECT_FALSE(response.fits());
  EXPECT_EQ(response.total_bytes(), 5u);
  grpc::Status s = plan({{"kv-blocks", "x"}}, &response);
  EXPECT_EQ(s.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(s.error_message().find("kv-blocks"), std::string::npos);
}

TEST_F(Operating, TheTokenGuardsItToo) {
  std::string path = testing::TempDir() + "admin-token-" + std::to_string(getpid());
  std::ofstream(path) << "s3cret\n";
  ServerOptions options;
  options.auth_token_file = path;
  open(options);
  auto code = [&](const char* header) {
    grpc::ClientContext context;
    if (*header != '\0') context.AddMetadata("authorization", header);
    admin::ServerInfo response;
    return operators->GetServerInfo(&context, {}, &response).error_code();
  };
  EXPECT_EQ(code(""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("Bearer wrong"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code("Bearer s3cret"), grpc::StatusCode::OK);
  EXPECT_EQ(set({}).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(abort("x").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  std::remove(path.c_str());
}

TEST_F(Operating, APortInUseIsSaid) {
  open();
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.metrics_listen = "";
  options.admin_listen = "127.0.0.1:" + std::to_string(server->admin_port());
  Result<std::unique_ptr<Server>> second = Server::start(options, clock, log);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("--admin-listen"), std::string::npos);
}

}  // namespace
}  // namespace pf
