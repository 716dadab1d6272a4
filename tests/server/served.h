#pragma once

// `pilotfish serve` as a process of its own, on a model that a test writes.
#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "backend/tiny_model.h"
#include "base/dtype.h"
#include "model/files.h"
#include "proto/pilotfish/v1/inference.grpc.pb.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace pf::test {

inline const bool grpc_is_quiet = (gpr_set_log_function([](gpr_log_func_args*) {}), true);

inline constexpr int32_t kByteVocabulary = 257;  // bytes, and the end of an answer

// Tokens are single bytes.
inline std::string byte_tokenizer_json() {
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
inline void write_model(const Folder& folder) {
  const Model m = tiny_model({.width = 64,
                              .ffn = 96,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_width = 64,
                              .vocabulary = kByteVocabulary});
  std::map<std::string, StRow> rows;
  auto add = [&](const std::string& name, const Tensor& t) {
    std::string halves;
    for (int64_t i = 0; i < t.size(); ++i)
      halves += raw(to_f16(reinterpret_cast<const float*>(t.data.data())[i]).bits);
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
  folder.put("model.safetensors", safetensors(rows));
  folder.put("tokenizer.json", byte_tokenizer_json());
  folder.put("config.json", R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
      "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
      "max_position_embeddings": 512, "vocab_size": 257, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "tie_word_embeddings": true, "eos_token_id": 256})");
}

inline std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// `pilotfish serve` as a process of its own with small limits, but for those that `flags` name; and
// a client of it.
class Served {
 public:
  // Its port is open then, unless it has ended.
  Served(const std::string& binary, const Folder& folder, const std::string& name,
         std::vector<std::string> flags)
      : log_(folder / (name + ".log")) {
    std::vector<std::string> args = {binary,        "serve",    "--model",
                                     folder.path(), "--listen", "127.0.0.1:0"};
    for (const auto& [flag, value] : {std::pair<std::string, std::string>{"--metrics-listen", ""},
                                      {"--max-model-len", "256"},
                                      {"--max-num-seqs", "4"},
                                      {"--max-num-batched-tokens", "64"},
                                      {"--threads", "1"},
                                      {"--gpu-memory-utilization", "0.2"}})
      if (std::find(flags.begin(), flags.end(), flag) == flags.end())
        args.insert(args.end(), {flag, value});
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
    stub = pilotfish::v1::Inference::NewStub(channel_);
  }
  bool wait_until_ready() {
    until([&] { return log().find(" ready ") != std::string::npos || ended(); });
    return !ended();
  }
  ~Served() {
    if (ended()) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  std::string log() const { return text_of(log_); }
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
  pid_t pid() const { return pid_; }

  // False after two minutes: the machine runs at a ten-thousandth of a GPU's speed.
  template <class Condition>
  static bool until(Condition condition) {
    for (int i = 0; i < 6000 && !condition(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return condition();
  }

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  std::unique_ptr<pilotfish::v1::Inference::Stub> stub;

 private:
  const std::string log_;
  pid_t pid_ = 0;
  int status_ = 0;
  bool has_status_ = false;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace pf::test
