// Truth: what RELIABILITY promises of the whole process: its exit codes, its last words and how
// soon it ends; the program itself, on a model of a few kilobytes.
#include <gmock/gmock.h>

#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "server/served.h"

namespace pf {
namespace {

namespace health = grpc::health::v1;
namespace wire = pilotfish::v1;
using namespace std::chrono_literals;
using test::Served;
using testing::HasSubstr;
using testing::Not;

struct Process : testing::Test {
  Process() { test::write_model(folder); }

  std::unique_ptr<Served> serve(std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--device", "cpu", "--speculation", "off"};
    flags.insert(flags.end(), more.begin(), more.end());
    return std::make_unique<Served>(PF_PILOTFISH, folder, std::to_string(++n_started), flags);
  }
  static int ready(Served& served) {
    grpc::ClientContext context;
    health::HealthCheckRequest request;
    request.set_service("pilotfish.v1.Inference");
    health::HealthCheckResponse response;
    auto stub = health::Health::NewStub(served.channel());
    grpc::Status s = stub->Check(&context, request, &response);
    return s.ok() ? static_cast<int>(response.status()) : -1;
  }
  static grpc::Status generate(Served& served, uint32_t n) {
    wire::GenerateRequest request;
    request.set_text("hi");
    request.mutable_stopping()->set_max_new_tokens(n);
    grpc::ClientContext context;
    wire::GenerateResponse response;
    return served.stub->Generate(&context, request, &response);
  }

  test::Folder folder;
  int n_started = 0;
};

constexpr int kServing = health::HealthCheckResponse::SERVING;
constexpr int kNotServing = health::HealthCheckResponse::NOT_SERVING;

TEST_F(Process, SaysThatTheSelfTestWasSkippedWhereNothingIsTested) {
  auto roomy = serve();
  ASSERT_TRUE(roomy->wait_until_ready()) << roomy->log();
  EXPECT_THAT(roomy->log(), HasSubstr("self-test passed"));
  EXPECT_THAT(roomy->log(), Not(HasSubstr("self-test skipped")));
  EXPECT_EQ(roomy->end(SIGTERM), 0);

  auto narrow = serve({"--max-model-len", "32"});
  ASSERT_TRUE(narrow->wait_until_ready()) << narrow->log();
  EXPECT_THAT(narrow->log(),
              HasSubstr("self-test skipped: --max-model-len 32 is less than the 41"));
  EXPECT_THAT(narrow->log(), Not(HasSubstr("self-test passed")));
  EXPECT_EQ(ready(*narrow), kServing);
  EXPECT_TRUE(generate(*narrow, 3).ok());
  EXPECT_EQ(narrow->end(SIGTERM), 0);
}

// A disk that does not answer: reading a pipe waits until somebody writes.
TEST_F(Process, SigtermWhileLoadingEndsAtOnceWith0) {
  for (int signal : {SIGTERM, SIGINT}) {
    std::filesystem::remove(folder / "tokenizer.json");
    ASSERT_EQ(mkfifo((folder / "tokenizer.json").c_str(), 0600), 0);
    auto served = serve();
    ASSERT_FALSE(served->ended()) << served->log();
    EXPECT_EQ(ready(*served), kNotServing);
    EXPECT_EQ(generate(*served, 1).error_code(), grpc::StatusCode::UNAVAILABLE);
    auto asked = std::chrono::steady_clock::now();
    EXPECT_EQ(served->end(signal), 0) << served->log();
    EXPECT_LT(std::chrono::steady_clock::now() - asked, 1s);
    EXPECT_THAT(served->log(), HasSubstr("ended"));
    EXPECT_THAT(served->log(), Not(HasSubstr(" ready ")));
  }
}

TEST_F(Process, ASignalThatKillsIsSaidWithAStack) {
  for (int signal : {SIGABRT, SIGSEGV}) {
    const std::string words = folder.put("last-words", "");
    auto served = serve({"--termination-log", words});
    ASSERT_TRUE(served->wait_until_ready()) << served->log();
    EXPECT_EQ(served->end(signal), signal == SIGABRT ? 70 : -1);
    EXPECT_THAT(served->log(), HasSubstr("pilotfish(_ZN2pf")) << "no function of ours is named";
    EXPECT_THAT(test::text_of(words), HasSubstr("pilotfish: fault: "));
    EXPECT_THAT(served->log(), HasSubstr(test::text_of(words)));
  }
}

// The model's first tensor moved behind the others and grown to so many rows of zeros, which take
// no room on the disk. Returns the file.
std::string grow_embedding(const test::Folder& folder, int64_t rows) {
  const std::string path = folder / "model.safetensors", old = test::text_of(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, old.data(), sizeof header_bytes);
  auto header = nlohmann::json::parse(old.substr(8, header_bytes));
  nlohmann::json& embedding = header["model.embed_tokens.weight"];
  const int64_t width = embedding["shape"][1], moved = embedding["data_offsets"][1];
  const auto rest = static_cast<int64_t>(old.size() - 8 - header_bytes) - moved;
  for (auto& row : header)
    for (auto& offset : row["data_offsets"]) offset = offset.get<int64_t>() - moved;
  embedding["shape"] = {rows, width};
  embedding["data_offsets"] = {rest, rest + rows * width * 2};
  folder.put("model.safetensors",
             test::safetensors(header.dump(), old.substr(8 + header_bytes + moved)));
  std::filesystem::resize_file(path, 8 + header.dump().size() + rest + rows * width * 2);
  std::string config = test::text_of(folder / "config.json");
  folder.put("config.json", config.replace(config.find("257"), 3, std::to_string(rows)));
  return path;
}

// 256 MB: long enough to be cut while they are looked through.
TEST_F(Process, AModelFileThatIsCutWhileItIsReadIsNamedInOneLine) {
  const std::string weights = grow_embedding(folder, 2 << 20);
  const std::string words = folder.put("last-words", "");
  auto served = serve({"--termination-log", words});
  const std::string maps = "/proc/" + std::to_string(served->pid()) + "/maps";
  auto give_up = std::chrono::steady_clock::now() + 60s;
  while (test::text_of(maps).find("model.safetensors") == std::string::npos && !served->ended() &&
         std::chrono::steady_clock::now() < give_up)
    std::this_thread::sleep_for(1ms);
  std::filesystem::resize_file(weights, 4096);
  EXPECT_EQ(served->end(), 2) << served->log();
  const std::string line = "pilotfish: " + weights + ": its bytes are gone";
  EXPECT_THAT(served->log(), HasSubstr(line));
  EXPECT_THAT(test::text_of(words), HasSubstr(line));
}

}  // namespace
}  // namespace pf
