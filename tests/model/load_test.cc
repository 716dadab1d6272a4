// Truth: tiny models whose files the test writes itself, weights compared bit for bit; and the
// reference implementations' meaning of configuration keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/families.h"
#include "model/model.h"
#include "model/quantize.h"
#include "tests/model/files.h"

namespace pf {
namespace {

using test::Folder;
using test::StRow;
using testing::HasSubstr;

std::string message(const Result<Model>& r) { return r.ok() ? "accepted" : r.status().message(); }

std::string bytes(const Tensor& t) {
  return {reinterpret_cast<const char*>(t.data.data()), t.data.size()};
}

Result<Model> load_tiny(const std::string& type, const std::string& more,
                        const std::map<std::string, StRow>& tensors, Role role = Role::kTarget) {
  Folder folder;
  folder.put("config.json", test::tiny_config(type, more));
  folder.put("model.safetensors", test::safetensors(tensors));
  return load_model(folder.path(), role);  // the mapping outlives the file's name
}

TEST(LoadHuggingFace, EveryTensorIsInItsPlace) {
  auto tensors = test::tiny_tensors(true, false);
  auto m = load_tiny("qwen2", "", tensors);
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(bytes(m->embedding), tensors["model.embed_tokens.weight"].data);
  EXPECT_EQ(bytes(m->head), tensors["lm_head.weight"].data);
  EXPECT_EQ(bytes(m->final_norm), tensors["model.norm.weight"].data);
  const LayerWeights& w = m->layers.at(1);
  const std::pair<const Tensor*, const char*> kPlaces[] = {
      {&w.attention_norm, "input_layernorm.weight"},
      {&w.q, "self_attn.q_proj.weight"},
      {&w.k, "self_attn.k_proj.weight"},
      {&w.v, "self_attn.v_proj.weight"},
      {&w.q_bias, "self_attn.q_proj.bias"},
      {&w.k_bias, "self_attn.k_proj.bias"},
      {&w.v_bias, "self_attn.v_proj.bias"},
      {&w.o, "self_attn.o_proj.weight"},
      {&w.ffn_norm, "post_attention_layernorm.weight"},
      {&w.gate, "mlp.gate_proj.weight"},
      {&w.up, "mlp.up_proj.weight"},
      {&w.down, "mlp.down_proj.weight"}};
  for (auto [t, name] : kPlaces) {
    EXPECT_EQ(bytes(*t), tensors["model.layers.1." + std::string(name)].data) << name;
  }
  EXPECT_EQ(m->config.rope_theta, 10000);  // the family's default, for a target
  EXPECT_EQ(m->config.head_width, 32);
  EXPECT_TRUE(m->config.qkv_bias);
}

TEST(LoadHuggingFace, ShardsAreJoined) {
  auto tensors = test::tiny_tensors(false, false);
  std::map<std::string, StRow> parts[2];
  std::string map;
  int i = 0;
  for (const auto& [name, row] : tensors) {
    parts[i % 2][name] = row;
    map +=
        (map.empty() ? "\"" : ",\"") + name + "\":\"m" + std::to_string(i++ % 2) + ".safetensors\"";
  }
  Folder folder;
  folder.put("config.json", test::tiny_config("llama", ""));
  folder.put("m0.safetensors", test::safetensors(parts[0]));
  folder.put("m1.safetensors", test::safetensors(parts[1]));
  folder.put("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  auto m = load_model(folder.path());
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(bytes(m->layers[1].down), tensors["model.layers.1.mlp.down_proj.weight"].data);

  folder.put("model.safetensors.index.json",
             "{\"weight_map\":{" + map + ",\"ghost\":\"m0.safetensors\"}}");
  EXPECT_THAT(message(load_model(folder.path())), HasSubstr("'ghost'"));
  parts[1]["model.norm.weight"] = parts[0]["model.norm.weight"] = tensors["model.norm.weight"];
  folder.put("m0.safetensors", test::safetensors(parts[0]));
  folder.put("m1.safetensors", test::safetensors(parts[1]));
  EXPECT_THAT(message(load_model(folder.path())), HasSubstr("'model.norm.weight'"));
}

TEST(LoadHuggingFace, TiedHeadIsTheEmbedding) {
  auto m = load_tiny("llama", ", \"tie_word_embeddings\": true", test::tiny_tensors(false, true));
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->head.data.data(), m->embedding.data.data());
  EXPECT_THAT(message(load_tiny("llama", "", test::tiny_tensors(false, true))),
              HasSubstr("'lm_head.weight' is missing"));
}

TEST(LoadHuggingFace, WrongTensorsAreNamed) {
  auto without = [](const std::string& name) {
    auto t = test::tiny_tensors(false, false);
    t.erase(name);
    return message(load_tiny("llama", "", t));
  };
  EXPECT_THAT(without("model.layers.1.mlp.up_proj.weight"), HasSubstr("layers.1.mlp.up_proj"));
  EXPECT_THAT(without("model.norm.weight"), HasSubstr("'model.norm.weight' is missing"));
  auto with = [](const std::string& name, StRow row) {
    auto t = test::tiny_tensors(false, false);
    t[name] = std::move(row);
    return message(load_tiny("llama", "", t));
  };
  EXPECT_THAT(
      with("model.layers.0.self_attn.k_proj.weight", {"F32", {64, 32}, std::string(8192, 0)}),
      HasSubstr("has shape [64, 32]; the configuration asks for [32, 64]"));
  EXPECT_THAT(with("model.norm.weight", {"I32", {64}, std::string(256, 0)}), HasSubstr("type I32"));
  EXPECT_THAT(with("model.norm.weight", {"F32", {64}, test::floats(std::vector<float>(64, NAN))}),
              HasSubstr("'model.norm.weight' holds NaN"));
  EXPECT_THAT(with("model.embed_tokens.weight", {"F32", {41, 64}, std::string(41 * 256, 0)}),
              HasSubstr("'model.embed_tokens.weight' has shape [41, 64]"));
  EXPECT_THAT(with("model.layers.0.self_attn.q_norm.weight", {"F32", {32}, std::string(128, 0)}),
              HasSubstr("q_norm.weight' is no part of a llama model"));
  EXPECT_THAT(
      with("model.layers.2.mlp.up_proj.weight", {"F32", {96, 64}, std::string(96 * 256, 0)}),
      HasSubstr("layers.2"));
  EXPECT_THAT(message(load_tiny("qwen2", "", test::tiny_tensors(false, false))),
              HasSubstr("q_proj.bias' is missing"));
}

TEST(LoadModel, MissingAndForeignPathsAreNamed) {
  Folder folder;
  EXPECT_THAT(message(load_model(folder / "none.gguf")), HasSubstr("none.gguf"));
  EXPECT_THAT(message(load_model(folder.path())), HasSubstr(folder.path()));
  folder.put("x.gguf", "hello, world");
  EXPECT_THAT(message(load_model(folder / "x.gguf")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(message(load_model(folder.path())), HasSubstr("x.gguf"));  // the only one there
  folder.put("model.safetensors", test::safetensors(test::tiny_tensors(false, false)));
  EXPECT_THAT(message(load_model(folder.path())), HasSubstr("config.json"));
}

TEST(Config, UnknownArchitecturesListTheKnownOnes) {
  std::string why = message(load_tiny("gpt_neox", "", test::tiny_tensors(false, false)));
  for (const char* part : {"gpt_neox", "llama", "qwen2", "mistral"})
    EXPECT_THAT(why, HasSubstr(part));
}

TEST(Config, HostileValuesAreRefused) {
  for (const char* more :
       {", \"num_hidden_layers\": 2",
        ", \"rope_theta\": 0",
        ", \"rope_theta\": -1",
        ", \"rope_theta\": 1e400",
        ", \"rope_theta\": \"x\"",
        ", \"head_dim\": 31",
        ", \"head_dim\": 0",
        ", \"hidden_act\": \"gelu\"",
        ", \"rope_scaling\": 3",
        ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2}",
        ", \"rope_scaling\": {\"rope_type\": \"linear\"}",
        ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 0}",
        ", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": -2}",
        ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}",
        ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
        "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}",
        ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8, \"beta_fast\": 0.5}",
        ", \"partial\": {\"a\": 1, \"a\": 2}",
        ", \"eos_token_id\": 40",
        ", \"eos_token_id\": -1",
        ", \"eos_token_id\": \"</s>\"",
        ", \"tie_word_embeddings\": 1"}) {
    EXPECT_NE(message(load_tiny("llama", more, test::tiny_tensors(false, false))), "accepted")
        << more;
  }
  const std::string good = test::tiny_config("llama", "");
  ASSERT_TRUE(config_of_json(good, "").ok());
  for (auto [from, to] : {std::pair{"_layers\": 2", "_layers\": 2147483648"},
                          {"_layers\": 2", "_layers\": 0"},
                          {"_layers\": 2", "_layers\": -1"},
                          {"_layers\": 2", "_layers\": 2.5"},
                          {"attention_heads\": 2", "attention_heads\": 0"},
                          {"value_heads\": 1", "value_heads\": 0"},
                          {"value_heads\": 1", "value_heads\": 3"},
                          {"hidden_size\": 64", "hidden_size\": 18446744073709551615"},
                          {"eps\": 1e-6", "eps\": 0"},
                          {"eps\": 1e-6", "eps\": null"},
                          {"vocab_size\": 40", "vocab_size\": -40"},
                          {"embeddings\": 512", "embeddings\": 0"}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos) << from;
    bad.replace(bad.find(from), std::strlen(from), to);
    EXPECT_FALSE(config_of_json(bad, "").ok()) << to;
  }
  for (const char* text : {"", "[]", "3", "{", "{\"model_type\": 3}", "{\"model_type\": null}"}) {
    EXPECT_FALSE(config_of_json(text, "").ok()) << text;
  }
  EXPECT_FALSE(config_of_json(good, "{\"temperature\": -1}").ok());
  EXPECT_FALSE(config_of_json(good, "{\"top_p\": 0}").ok());
}

ModelConfig config(const std::string& type, const std::string& more,
                   const std::string& generation = "") {
  auto c = config_of_json(test::tiny_config(type, more), generation);
  EXPECT_TRUE(c.ok()) << c.status().message();
  return c.ok() ? *c : ModelConfig{};
}

TEST(Config, RopeScalingInEveryWriting) {
  using Kind = RopeScaling::Kind;
  ModelConfig old = config("llama", R"(, "rope_scaling": {"type": "linear", "factor": 4.0})");
  EXPECT_EQ(old.rope_scaling.kind, Kind::kLinear);
  EXPECT_EQ(old.rope_scaling.factor, 4);
  EXPECT_EQ(old.max_context, 2048);
  EXPECT_EQ(old.rope_theta, 0);
  ModelConfig five = config("llama", R"(, "rope_parameters": {"rope_theta": 1e5, "rope_type":
      "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 64})");
  EXPECT_EQ(five.rope_scaling.kind, Kind::kLlama3);
  EXPECT_EQ(five.rope_theta, 1e5f);
  EXPECT_EQ(five.rope_scaling.original_max_position, 64);
  EXPECT_EQ(five.max_context, 512);
  ModelConfig yarn = config("qwen2", R"(, "rope_theta": 1e6, "rope_scaling": {"type": "yarn",
      "factor": 4.0, "original_max_position_embeddings": 512})");
  EXPECT_EQ(yarn.rope_scaling.kind, Kind::kYarn);
  EXPECT_EQ(yarn.max_context, 2048);
  ModelConfig plain = config("llama", R"(, "rope_scaling": null, "rope_parameters":
      {"rope_type": "default", "rope_theta": 5e5})");
  EXPECT_EQ(plain.rope_scaling.kind, Kind::kNone);
  EXPECT_EQ(plain.rope_theta, 5e5f);
}

TEST(Config, SlidingWindowAsTheReferenceReadsIt) {
  EXPECT_EQ(config("mistral", "").sliding_window, 4096);
  EXPECT_EQ(config("mistral", ", \"sliding_window\": null").sliding_window, 0);
  EXPECT_EQ(config("mistral", ", \"sliding_window\": 128").sliding_window, 128);
  EXPECT_EQ(config("llama", ", \"sliding_window\": 128").sliding_window, 0);
  EXPECT_EQ(config("qwen2", ", \"sliding_window\": 128").sliding_window, 0);
  EXPECT_EQ(config("qwen2",
                   ", \"sliding_window\": 128, \"use_sliding_window\": true, "
                   "\"max_window_layers\": 0")
                .sliding_window,
            128);
  EXPECT_EQ(config("qwen2",
                   ", \"sliding_window\": 128, \"use_sliding_window\": true, "
                   "\"max_window_layers\": 2")
                .sliding_window,
            0);
  EXPECT_FALSE(
      config_of_json(test::tiny_config("qwen2",
                                       ", \"sliding_window\": 128, "
                                       "\"use_sliding_window\": true, \"max_window_layers\": 1"),
                     "")
          .ok());
}

TEST(Config, GenerationConfigGoesBeforeConfig) {
  GenerationDefaults g = config("llama", ", \"eos_token_id\": 1, \"bos_token_id\": 3",
                                R"({"eos_token_id": [5, 6], "temperature": 0.6, "top_k": 20,
                                    "top_p": 0.9, "repetition_penalty": 1.05})")
                             .generation;
  EXPECT_THAT(g.eos_token_ids, testing::ElementsAre(5, 6));
  EXPECT_EQ(g.bos_token_id, 3);
  EXPECT_EQ(g.temperature, 0.6f);
  EXPECT_EQ(g.top_k, 20);
  EXPECT_EQ(g.top_p, 0.9f);
  EXPECT_EQ(g.repetition_penalty, 1.05f);
  EXPECT_EQ(g.min_p, std::nullopt);
  EXPECT_THAT(config("llama", ", \"eos_token_id\": 1").generation.eos_token_ids,
              testing::ElementsAre(1));
}

// A GGUF of the tiny decoder. For "llama" the rows of q and k are interleaved as llama.cpp's
// converter does it: row 2 i + s of a head is Hugging Face's row i + 16 s.
test::GgufBytes tiny_gguf(const std::string& arch, bool bias) {
  test::GgufBytes g;
  g.str("general.architecture", arch);
  for (auto [key, v] : {std::pair{"block_count", 2u},
                        {"context_length", 512u},
                        {"embedding_length", 64u},
                        {"feed_forward_length", 96u},
                        {"attention.head_count", 2u},
                        {"attention.head_count_kv", 1u}}) {
    g.u32(arch + "." + key, v);
  }
  g.f32(arch + ".attention.layer_norm_rms_epsilon", 1e-6f);
  const std::pair<const char*, const char*> kNames[] = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
      {"model.layers.", "blk."},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [hf, row] : test::tiny_tensors(bias, false)) {
    std::string name = hf, data = row.data;
    for (auto [from, to] : kNames) {
      size_t at = name.find(from);
      if (at != std::string::npos) name.replace(at, std::strlen(from), to);
    }
    bool turned =
        name.find("attn_q") != std::string::npos || name.find("attn_k") != std::string::npos;
    if (turned && arch == "llama") {
      size_t bytes = data.size() / static_cast<size_t>(row.shape[0]);
      for (size_t r = 0; r < static_cast<size_t>(row.shape[0]); ++r) {
        size_t head = r / 32 * 32, i = r % 32 / 2, s = r % 2;
        data.replace(r * bytes, bytes, row.data.substr((head + i + 16 * s) * bytes, bytes));
      }
    }
    g.rows.push_back({name, {row.shape.rbegin(), row.shape.rend()}, 0, data});
  }
  return g;
}

TEST(LoadGguf, RowsOfQAndKComeInOneOrder) {
  for (std::string arch : {"llama", "qwen2"}) {
    for (bool bias : {false, true}) {
      if (arch == "qwen2" && !bias) continue;
      Folder folder;
      auto m = load_model(folder.put("m.gguf", tiny_gguf(arch, bias).build()));
      ASSERT_TRUE(m.ok()) << m.status().message();
      auto want = load_tiny(arch, "", test::tiny_tensors(bias, false));
      ASSERT_TRUE(want.ok()) << want.status().message();
      auto a = all_tensors(*m), b = all_tensors(*want);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(bytes(*a[i]), bytes(*b[i])) << a[i]->name;
    }
  }
}

TEST(LoadGguf, KeysThatAreMissingOrNotSupportedAreNamed) {
  auto with = [](const std::function<void(test::GgufBytes&)>& change) {
    test::GgufBytes g = tiny_gguf("llama", false);
    change(g);
    Folder folder;
    return message(load_model(folder.put("m.gguf", g.build())));
  };
  EXPECT_EQ(with([](auto&) {}), "accepted");
  EXPECT_THAT(with([](auto& g) { g.keys.erase(g.keys.begin() + 1); }),
              HasSubstr("'llama.block_count' is missing"));
  EXPECT_THAT(with([](auto& g) { g.keys[0] = test::text("x") + test::raw(4u) + test::raw(1u); }),
              HasSubstr("'general.architecture' is missing"));
  EXPECT_THAT(with([](auto& g) {
                g.keys[1] = test::text("llama.block_count") + test::raw(8u) + test::text("2");
              }),
              HasSubstr("'llama.block_count'"));
  EXPECT_THAT(with([](auto& g) { g.u32("llama.expert_count", 8); }), HasSubstr("experts"));
  EXPECT_THAT(with([](auto& g) { g.u32("llama.rope.dimension_count", 16); }), HasSubstr("partial"));
  EXPECT_THAT(with([](auto& g) { g.f32("llama.rope.freq_base", NAN); }), HasSubstr("freq_base"));
  EXPECT_THAT(with([](auto& g) { g.f32("llama.rope.freq_base", 0); }), HasSubstr("freq_base"));
  EXPECT_THAT(with([](auto& g) { g.str("llama.rope.scaling.type", "longrope"); }),
              HasSubstr("longrope"));
  EXPECT_THAT(with([](auto& g) { g.u32("split.count", 3); }), HasSubstr("merge"));
  EXPECT_THAT(with([](auto& g) { g.u32("llama.vocab_size", 41); }), HasSubstr("token_embd.weight"));
  EXPECT_THAT(with([](auto& g) { g.u32("tokenizer.ggml.eos_token_id", 40); }),
              HasSubstr("token id 40"));
  EXPECT_THAT(
      with([](auto& g) { g.f32_tensor("rope_freqs.weight", {16}, std::vector<float>(16, 0)); }),
      HasSubstr("frequency factor"));
  EXPECT_THAT(
      with([](auto& g) { g.f32_tensor("rope_freqs.weight", {8}, std::vector<float>(8, 1)); }),
      HasSubstr("frequency factors"));
}

TEST(LoadGguf, RopeKeysAreRead) {
  test::GgufBytes g = tiny_gguf("llama", false);
  std::vector<float> factors(16, 1);
  factors[15] = 8;
  g.f32_tensor("rope_freqs.weight", {16}, factors);
  g.f32("llama.rope.freq_base", 5e5f);
  Folder folder;
  auto m = load_model(folder.put("m.gguf", g.build()));
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->config.rope_theta, 5e5f);
  EXPECT_EQ(m->config.rope_scaling.frequency_factors, factors);
  EXPECT_EQ(m->config.rope_scaling.kind, RopeScaling::Kind::kLlama3);

  test::GgufBytes y = tiny_gguf("llama", false);
  y.str("llama.rope.scaling.type", "yarn");
  y.f32("llama.rope.scaling.factor", 4);
  y.u32("llama.rope.scaling.original_context_length", 128);
  auto yarn = load_model(folder.put("y.gguf", y.build()));
  ASSERT_TRUE(yarn.ok()) << yarn.status().message();
  EXPECT_EQ(yarn->config.rope_scaling.original_max_position, 128);
  EXPECT_FLOAT_EQ(rope_frequencies(yarn->config).attention_factor, float(0.1 * std::log(4) + 1));
}

TEST(CheckFits, RefusesWhatCannotAgree) {
  auto target = load_tiny("llama", "", test::tiny_tensors(false, false));
  auto draft = load_tiny("llama", "", test::tiny_tensors(false, false), Role::kDraft);
  ASSERT_TRUE(target.ok() && draft.ok());
  EXPECT_EQ(draft->config.rope_theta, 0);  // not guessed
  EXPECT_THAT(check_fits(*draft, *target).message(), HasSubstr("rope_theta"));
  draft->config.rope_theta = 10000;
  EXPECT_TRUE(check_fits(*draft, *target).ok());
  draft->head_tokens = {0, 39};
  EXPECT_TRUE(check_fits(*draft, *target).ok());
  draft->head_tokens = {0, 40};
  EXPECT_THAT(check_fits(*draft, *target).message(), HasSubstr("token 40"));
  draft->head_tokens.clear();
  draft->shares_embedding = true;
  draft->config.width = 32;
  EXPECT_THAT(check_fits(*draft, *target).message(), HasSubstr("width"));
}

// A head of one layer over the tiny decoder's hidden states, as its trainer names it.
std::map<std::string, test::StRow> tiny_head_tensors() {
  auto t = test::tiny_tensors(false, false);
  std::map<std::string, test::StRow> out;
  for (auto& [name, row] : t)
    if (name.starts_with("model.layers.0.") || name == "model.norm.weight")
      out[name.substr(6)] = row;
  out["lm_head.weight"] = {"F32", {3, 64}, test::floats(test::random_floats(192, 90))};
  out["d2t"] = {"I32", {3}, test::raw(5) + test::raw(17) + test::raw(39)};
  out["fc.weight"] = {"F32", {64, 128}, test::floats(test::random_floats(64 * 128, 91))};
  out["enorm.weight"] = {"F32", {64}, test::floats(test::random_floats(64, 92))};
  out["hnorm.weight"] = {"F32", {64}, test::floats(test::random_floats(64, 93))};
  return out;
}

Result<Model> load_head(const std::map<std::string, test::StRow>& tensors, const Folder& folder) {
  std::string config = test::tiny_config("llama", ", \"rope_theta\": 10000.0");
  config.replace(config.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 1");
  folder.put("config.json", config);
  folder.put("model.safetensors", test::safetensors(tensors));
  return load_model(folder.path(), Role::kDraft);
}

TEST(EagleHead, LoadsQuantisesAndFitsItsTarget) {
  Folder folder;
  auto head = load_head(tiny_head_tensors(), folder);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_TRUE(head->takes_hidden());
  EXPECT_TRUE(head->shares_embedding);
  EXPECT_EQ(head->head_tokens, (std::vector<int32_t>{5, 17, 39}));
  EXPECT_EQ(head->fc.shape, (std::vector<int64_t>{64, 128}));
  auto target = load_tiny("llama", ", \"rope_theta\": 10000.0", test::tiny_tensors(false, false));
  ASSERT_TRUE(target.ok());
  EXPECT_FALSE(target->takes_hidden());
  EXPECT_TRUE(check_fits(*head, *target).ok());
  EXPECT_THAT(check_stands_alone(*head).message(), HasSubstr("--draft"));

  auto report = quantize_file(folder.path(), folder / "head.gguf", TensorType::kQ8_0, 2);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->tensors[2].name, "fc.weight");
  auto again = load_model(folder / "head.gguf", Role::kDraft);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->head_tokens, head->head_tokens);
  EXPECT_EQ(again->fc.type, TensorType::kQ8_0);
  std::vector<float> a(128), b(128);
  dequantize_rows(head->fc, 7, 1, a.data());
  dequantize_rows(again->fc, 7, 1, b.data());
  for (size_t i = 0; i < 128; ++i) EXPECT_NEAR(a[i], b[i], 0.005);  // a step of .5 / 127
  EXPECT_EQ(again->hidden_norm.shape, (std::vector<int64_t>{64}));
}

TEST(EagleHead, AnotherWidthIsRefusedWithAllThatDoesNotFit) {
  Folder folder;
  auto head = load_head(tiny_head_tensors(), folder);
  auto target = load_tiny("llama", "", test::tiny_tensors(false, false));
  ASSERT_TRUE(head.ok() && target.ok());
  target->config.width = 96;
  target->config.vocabulary_size = 30;
  head->config.rope_theta = 0;
  std::string refused = check_fits(*head, *target).message();
  EXPECT_THAT(refused, HasSubstr("hidden states of width 96, its own width is 64"));
  EXPECT_THAT(refused, HasSubstr("token 39, the target has 30"));
  EXPECT_THAT(refused, HasSubstr("rope_theta"));
  Folder broken;
  auto tensors = tiny_head_tensors();
  tensors["fc.weight"] = {"F32", {64, 64}, std::string(64 * 64 * 4, 0)};
  EXPECT_THAT(load_head(tensors, broken).status().message(), HasSubstr("'fc.weight'"));
  tensors = tiny_head_tensors();
  tensors.erase("hnorm.weight");
  EXPECT_THAT(load_head(tensors, broken).status().message(), HasSubstr("'hnorm.weight'"));
}

TEST(ReducedHead, BadMapsAreRefusedByName) {
  auto with = [](const std::string& dtype, std::vector<int64_t> shape, const std::string& data) {
    auto t = test::tiny_tensors(false, true);
    t["lm_head.weight"] = {"F32", {2, 64}, std::string(512, 0)};
    t["d2t"] = {dtype, std::move(shape), data};
    return message(load_tiny("llama", "", t));
  };
  EXPECT_EQ(with("I32", {2}, test::raw(39) + test::raw(3)), "accepted");
  EXPECT_EQ(with("I64", {2}, test::raw<int64_t>(39) + test::raw<int64_t>(3)), "accepted");
  EXPECT_THAT(with("I32", {2}, test::raw(40) + test::raw(3)), HasSubstr("'d2t'"));
  EXPECT_THAT(with("I32", {2}, test::raw(-1) + test::raw(3)), HasSubstr("'d2t'"));
  EXPECT_THAT(with("I32", {2}, test::raw(3) + test::raw(3)), HasSubstr("twice"));
  EXPECT_THAT(with("I64", {2}, test::raw<int64_t>(3) + test::raw(int64_t{1} << 33)),
              HasSubstr("'d2t'"));
  EXPECT_THAT(with("F32", {2}, std::string(8, 0)), HasSubstr("'d2t'"));
  EXPECT_THAT(with("I32", {1, 2}, std::string(8, 0)), HasSubstr("'d2t'"));
  EXPECT_THAT(with("I32", {3}, test::raw(1) + test::raw(2) + test::raw(3)), HasSubstr("lm_head"));
}

TEST(CheckFinite, NamesTheFirstTensorWithANan) {
  auto tensors = test::tiny_tensors(false, false);
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "lm_head.weight"}) {
    tensors[name].data.replace(tensors[name].data.size() - 4, 4, test::raw(NAN));
  }
  auto m = load_tiny("llama", "", tensors);
  ASSERT_TRUE(m.ok()) << m.status().message();
  ThreadPool pool(3);
  EXPECT_THAT(check_finite(*m, pool).message(), HasSubstr("'model.layers.1.mlp.up_proj.weight'"));
}

}  // namespace
}  // namespace pf
