// Truth: the greedy text of the same model files served on the CPU in float32. Everything between a
// client and a kernel is what runs in earnest: the program itself, its files, options and threads,
// with a PTX machine where the GPU would be.
#include <gmock/gmock.h>

#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "server/served.h"

namespace pf {
namespace {

namespace health = grpc::health::v1;
using test::Served;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
namespace wire = pilotfish::v1;

const std::vector<std::string> kOnCuda = {"--device",       "cuda", "--draft",       "self",
                                          "--draft-layers", "1",    "--speculation", "ngram,model"};

wire::GenerateRequest request(const std::string& prompt, uint32_t n = 20) {
  wire::GenerateRequest r;
  r.set_text(prompt);
  r.mutable_stopping()->set_max_new_tokens(n);
  r.mutable_stopping()->set_ignore_eos(true);
  r.mutable_output()->set_token_ids(true);
  return r;
}

struct Answer {
  std::string text;
  std::vector<uint32_t> ids;
  bool operator==(const Answer&) const = default;
};

// The answers to all prompts, asked for at once; what was drafted and kept is added up.
std::vector<Answer> ask(Served& served, const wire::Speculation& speculation,
                        uint32_t* drafted = nullptr, uint32_t* accepted = nullptr) {
  const std::vector<std::string> prompts = {"hello", "hello, world; hello", "PTX"};
  std::vector<wire::GenerateResponse> replies(prompts.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < prompts.size(); ++i)
    clients.emplace_back([&, i] {
      grpc::ClientContext context;
      wire::GenerateRequest r = request(prompts[i]);
      *r.mutable_speculation() = speculation;
      grpc::Status s = served.stub->Generate(&context, r, &replies[i]);
      EXPECT_TRUE(s.ok()) << s.error_message() << "\n" << served.log();
    });
  for (std::thread& c : clients) c.join();
  std::vector<Answer> answers;
  for (const auto& reply : replies) {
    if (reply.completions_size() != 1) return {};
    const auto& c = reply.completions(0);
    EXPECT_EQ(c.token_ids_size(), 20);
    answers.push_back({c.text(), {c.token_ids().begin(), c.token_ids().end()}});
    if (drafted != nullptr) *drafted += c.finish().speculation().drafted_tokens();
    if (accepted != nullptr) *accepted += c.finish().speculation().accepted_tokens();
  }
  return answers;
}

wire::Speculation chain(const std::string& drafter) {
  wire::Speculation s;
  s.set_mode(wire::Speculation::FIXED);
  s.set_num_draft_tokens(3);
  s.add_drafters(drafter);
  return s;
}

TEST(CudaServer, SaysWhatTheCpuSaysWithDraftsAndWithoutAndLetsGoOfACancelledCall) {
  test::Folder folder;
  test::write_model(folder);
  wire::Speculation off, tree = chain("model");
  off.set_mode(wire::Speculation::OFF);
  tree.clear_num_draft_tokens();
  for (uint32_t width : {2u, 2u}) tree.add_tree(width);
  std::vector<Answer> want;
  {
    Served cpu(PF_PILOTFISH_ON_MACHINE, folder, "cpu",
               {"--device", "cpu", "--dtype", "fp32", "--speculation", "off"});
    ASSERT_TRUE(cpu.wait_until_ready()) << cpu.log();
    want = ask(cpu, off);
    ASSERT_EQ(want.size(), 3u);
  }
  Served cuda(PF_PILOTFISH_ON_MACHINE, folder, "cuda", kOnCuda);
  ASSERT_TRUE(cuda.wait_until_ready()) << cuda.log();
  EXPECT_THAT(cuda.log(), HasSubstr("device=\"ptxvm sm_80\" dtype=fp16"));  // as the file
  EXPECT_EQ(ask(cuda, off), want);
  for (const auto& speculation : {chain("model"), chain("ngram"), tree}) {
    uint32_t drafted = 0, accepted = 0;
    EXPECT_EQ(ask(cuda, speculation, &drafted, &accepted), want) << speculation.ShortDebugString();
    EXPECT_GT(drafted, 0u);
    EXPECT_TRUE(accepted > 0 || speculation.drafters(0) == "ngram");
  }

  grpc::ClientContext context;  // of a call that would go on for long
  auto reader = cuda.stub->GenerateStream(&context, request("hello", 200));
  wire::GenerateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  context.TryCancel();
  while (reader->Read(&chunk)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(ask(cuda, off), want);
  EXPECT_EQ(cuda.end(SIGTERM), 0) << cuda.log();
  EXPECT_THAT(cuda.log(), HasSubstr("all_finished=yes"));
}

TEST(CudaServer, ADeviceFaultTurnsHealthThenEndsTheProcessWith70) {
  test::Folder folder;
  test::write_model(folder);
  const std::string words = folder.put("last-words", "");
  std::vector<std::string> flags = kOnCuda;
  flags.insert(flags.end(), {"--termination-log", words});
  Served cuda(PF_PILOTFISH_ON_MACHINE, folder, "cuda", flags);
  ASSERT_TRUE(cuda.wait_until_ready()) << cuda.log();
  grpc::ClientContext watching;
  health::HealthCheckRequest all;
  auto states = health::Health::NewStub(cuda.channel())->Watch(&watching, all);
  health::HealthCheckResponse state;
  ASSERT_TRUE(states->Read(&state));
  EXPECT_EQ(state.status(), health::HealthCheckResponse::SERVING);

  cuda.tell(SIGUSR1);  // the device fails; the next step finds it so
  grpc::ClientContext context;
  wire::GenerateResponse reply;
  EXPECT_FALSE(cuda.stub->Generate(&context, request("hello", 200), &reply).ok());
  auto failed = std::chrono::steady_clock::now();
  ASSERT_TRUE(states->Read(&state)) << "the last word of Health.Watch is missing";
  EXPECT_EQ(state.status(), health::HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(states->Read(&state));
  EXPECT_EQ(cuda.end(), 70) << cuda.log();
  EXPECT_LT(std::chrono::steady_clock::now() - failed, std::chrono::seconds(5));
  EXPECT_THAT(cuda.log(), HasSubstr("pilotfish: fault: "));
  EXPECT_THAT(cuda.log(), HasSubstr("src/backend/cuda/"));  // which call met it
  EXPECT_THAT(test::text_of(words), AllOf(HasSubstr("pilotfish: fault: "), EndsWith("\n")));
}

}  // namespace
}  // namespace pf
