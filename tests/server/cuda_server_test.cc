// Truth: the greedy text of the same model files served on the CPU in float32. Everything between a
// client and a kernel is what runs in earnest: the program itself, its files, options and threads,
// with a PTX machine where the GPU would be.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "backend/tiny_model.h"
#include "base/dtype.h"
#include "model/files.h"
#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "proto/pilotfish/v1/inference.grpc.pb.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace pf {
namespace {

namespace health = grpc::health::v1;
using testing::HasSubstr;
namespace wire = pilotfish::v1;

const bool grpc_is_quiet = (gpr_set_log_function([](gpr_log_func_args*) {}), true);
constexpr int32_t kVocabulary = 257;  // bytes, and the end of an answer

// Tokens are single bytes.
std::string tokenizer_json() {
  nlohmann::json j = {{"model", {{"type", "BPE"}, {"merges", nlohmann::json::array()}}},
                      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                      {"added_tokens", {{{"id", 256}, {"content", "<|end|>"}, {"special", true}}}}};
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    append_utf8(letter_of_byte(static_cast<uint8_t>(byte)), &letter);
    j["model"]["vocab"][letter] = byte;
  }
  return j.dump();
}

// A model of the shape that the kernels serve, as a folder in FP16.
void write_model(const test::Folder& folder) {
  const Model m = tiny_model({.width = 64,
                              .ffn = 96,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_width = 64,
                              .vocabulary = kVocabulary});
  std::map<std::string, test::StRow> rows;
  auto add = [&](const std::string& name, const Tensor& t) {
    std::string halves;
    for (int64_t i = 0; i < t.size(); ++i)
      halves += test::raw(to_f16(reinterpret_cast<const float*>(t.data.data())[i]).bits);
    rows[name] = {"F16", t.shape, halves};
  };
  add("model.embed_tokens.weight", m.embedding);
  add("model.norm.weight", m.final_norm);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const LayerWeights& w = m.layers[l];
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    add(layer + "input_layernorm.weight", w.attention_norm);
    add(layer + "post_attention_layernorm.weight", w.ffn_norm);
    add(layer + "self_attn.q_proj.weight", w.q);
    add(layer + "self_attn.k_proj.weight", w.k);
    add(layer + "self_attn.v_proj.weight", w.v);
    add(layer + "self_attn.o_proj.weight", w.o);
    add(layer + "mlp.gate_proj.weight", w.gate);
    add(layer + "mlp.up_proj.weight", w.up);
    add(layer + "mlp.down_proj.weight", w.down);
  }
  folder.put("model.safetensors", test::safetensors(rows));
  folder.put("tokenizer.json", tokenizer_json());
  folder.put("config.json", R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
      "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
      "max_position_embeddings": 512, "vocab_size": 257, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "tie_word_embeddings": true, "eos_token_id": 256})");
}

// `pilotfish serve` as a process of its own, and a client of it.
class Served {
 public:
  Served(const test::Folder& folder, const std::string& name, std::vector<std::string> flags)
      : log_(folder / (name + ".log")) {
    std::vector<std::string> args = {PF_PILOTFISH_ON_MACHINE,
                                     "serve",
                                     "--model",
                                     folder.path(),
                                     "--listen",
                                     "127.0.0.1:0",
                                     "--metrics-listen",
                                     "",
                                     "--max-model-len",
                                     "256",
                                     "--max-num-seqs",
                                     "4",
                                     "--max-num-batched-tokens",
                                     "64",
                                     "--threads",
                                     "1",
                                     "--gpu-memory-utilization",
                                     "0.2"};
    args.insert(args.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, log_.c_str(), O_CREAT | O_WRONLY, 0600);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    until([&] { return log().find(" port=") != std::string::npos || ended(); });
    const std::string text = log(), key = " port=";
    if (text.find(key) == std::string::npos) return;
    channel_ = grpc::CreateChannel(
        "ipv4:127.0.0.1:" + std::to_string(std::atoi(&text[text.find(key) + key.size()])),
        grpc::InsecureChannelCredentials());
    stub = wire::Inference::NewStub(channel_);
    until([&] { return log().find(" ready ") != std::string::npos || ended(); });
  }
  ~Served() {
    if (ended()) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  std::string log() const {
    std::stringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }
  bool ended() {
    if (!has_status_ && waitpid(pid_, &status_, WNOHANG) == pid_) has_status_ = true;
    return has_status_;
  }
  // The exit code, after a signal or none; -1 when it does not end.
  int end(int signal = 0) {
    if (signal != 0) kill(pid_, signal);
    until([&] { return ended(); });
    return has_status_ && WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }
  void tell(int signal) const { kill(pid_, signal); }

  // False after two minutes: the machine runs at a ten-thousandth of a GPU's speed.
  template <class Condition>
  static bool until(Condition condition) {
    for (int i = 0; i < 6000 && !condition(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return condition();
  }

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  std::unique_ptr<wire::Inference::Stub> stub;

 private:
  const std::string log_;
  pid_t pid_ = 0;
  int status_ = 0;
  bool has_status_ = false;
  std::shared_ptr<grpc::Channel> channel_;
};

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
  write_model(folder);
  wire::Speculation off, tree = chain("model");
  off.set_mode(wire::Speculation::OFF);
  tree.clear_num_draft_tokens();
  for (uint32_t width : {2u, 2u}) tree.add_tree(width);
  std::vector<Answer> want;
  {
    Served cpu(folder, "cpu", {"--device", "cpu", "--dtype", "fp32", "--speculation", "off"});
    ASSERT_TRUE(cpu.stub != nullptr) << cpu.log();
    want = ask(cpu, off);
    ASSERT_EQ(want.size(), 3u);
  }
  Served cuda(folder, "cuda", kOnCuda);
  ASSERT_TRUE(cuda.stub != nullptr) << cuda.log();
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
  write_model(folder);
  Served cuda(folder, "cuda", kOnCuda);
  ASSERT_TRUE(cuda.stub != nullptr) << cuda.log();
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
  ASSERT_TRUE(states->Read(&state)) << "the last word of Health.Watch is missing";
  EXPECT_EQ(state.status(), health::HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(states->Read(&state));
  EXPECT_EQ(cuda.end(), 70) << cuda.log();
  EXPECT_THAT(cuda.log(), HasSubstr("pilotfish: fault: "));
  EXPECT_THAT(cuda.log(), HasSubstr("src/backend/cuda/"));  // which call met it
}

}  // namespace
}  // namespace pf
