// Truth: sums worked by hand, and W + s B A as a float64 loop over what the test wrote itself.
#include "model/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/quantize.h"
#include "tests/model/files.h"

namespace pf {
namespace {

using test::Folder;
using test::StRow;
using testing::HasSubstr;
using Tensors = std::map<std::string, StRow>;

constexpr const char* kPrefix = "base_model.model.";

// adapter_config.json as PEFT writes it, with what does not matter here; `more` overrides nothing
// and ends with a comma.
std::string config(int r, double alpha, const std::string& more = "") {
  return "{" + more + R"("peft_type": "LORA", "r": )" + std::to_string(r) + R"(, "lora_alpha": )" +
         std::to_string(alpha) +
         R"(, "base_model_name_or_path": "tiny", "bias": "none", "fan_in_fan_out": false,
             "init_lora_weights": true, "inference_mode": true, "lora_dropout": 0.05,
             "modules_to_save": null, "rank_pattern": {}, "target_modules": ["q_proj"],
             "task_type": "CAUSAL_LM", "use_dora": false, "layers_to_transform": null,
             "layer_replication": null, "loftq_config": {}})";
}

StRow f32(std::vector<int64_t> shape, unsigned seed) {
  size_t n = 1;
  for (int64_t d : shape) n *= static_cast<size_t>(d);
  return {"F32", shape, test::floats(test::random_floats(n, seed))};
}

std::vector<float> values(const StRow& row) {
  std::vector<float> v(row.data.size() / 4);
  std::memcpy(v.data(), row.data.data(), row.data.size());
  return v;
}
std::vector<float> values(const Tensor& t) {
  std::vector<float> v(static_cast<size_t>(t.size()));
  dequantize_rows(t, 0, t.rows(), v.data());
  return v;
}

// A and B of a module [out, in].
void add_matrix(Tensors* t, const std::string& module, int64_t out, int64_t in, int64_t r,
                unsigned seed) {
  (*t)[kPrefix + module + ".lora_A.weight"] = f32({r, in}, seed);
  (*t)[kPrefix + module + ".lora_B.weight"] = f32({out, r}, seed + 1);
}

struct Adapter {
  Folder folder;
  Adapter(const std::string& config_json, const Tensors& tensors) {
    folder.put("adapter_config.json", config_json);
    folder.put("adapter_model.safetensors", test::safetensors(tensors));
  }
  std::string refusal() const {
    auto read = read_lora(folder.path());
    return read.ok() ? "accepted" : read.status().message();
  }
};

Model tiny(bool tied) {
  Folder folder;
  folder.put("config.json", test::tiny_config("llama", tied ? R"(, "tie_word_embeddings": true)"
                                                            : R"(, "rope_theta": 1e4)"));
  folder.put("model.safetensors", test::safetensors(test::tiny_tensors(false, tied)));
  auto m = load_model(folder.path());
  EXPECT_TRUE(m.ok()) << m.status().message();
  return m.take();
}

std::string merge(const Adapter& adapter, Model* m, Content content = Content::kWeights) {
  auto read = read_lora(adapter.folder.path());
  Status s = read.ok() ? merge_lora(*read, content, m) : read.status();
  return s.ok() ? "merged" : s.message();
}

// Each sum has one rounding per product and sum of r + 1 terms of size below 1: (r + 2) 2^-24.
void expect_sum(const std::vector<float>& got, const std::vector<float>& w,
                const std::vector<float>& a, const std::vector<float>& b, double scale, size_t r) {
  const size_t in = a.size() / r, out = b.size() / r;
  ASSERT_EQ(got.size(), out * in);
  for (size_t o = 0; o < out; ++o)
    for (size_t i = 0; i < in; ++i) {
      double sum = w[o * in + i];
      for (size_t k = 0; k < r; ++k)
        sum += scale * static_cast<double>(b[o * r + k]) * static_cast<double>(a[k * in + i]);
      ASSERT_NEAR(got[o * in + i], sum, static_cast<double>(r + 2) * 0x1p-24) << o << ", " << i;
    }
}

// r = 1, alpha = 3: 1 + 3 * 2 * 5 and so on.
TEST(Lora, WorkedByHand) {
  Model m;
  std::vector<float> w = {1, 2, 3, 4, 5, 6}, a = {5, 6, 7}, b = {2, -1};
  m.config.n_layers = 1;
  m.layers.resize(1);
  m.layers[0].up = {"up", TensorType::kF32, {2, 3}, std::as_bytes(std::span(w))};
  LoraAdapter adapter;
  adapter.matrices.push_back({"model.layers.0.mlp.up_proj.weight",
                              {"a", TensorType::kF32, {1, 3}, std::as_bytes(std::span(a))},
                              {"b", TensorType::kF32, {2, 1}, std::as_bytes(std::span(b))},
                              false,
                              3});
  ASSERT_TRUE(merge_lora(adapter, Content::kWeights, &m).ok());
  EXPECT_EQ(values(m.layers[0].up), (std::vector<float>{31, 38, 45, -11, -13, -15}));
  // An embedding of three tokens: A [1, 3] by token, B [2, 1]: 1 + 3 * 5 * 2, 2 + 3 * 5 * -1, ...
  m.embedding = {"e", TensorType::kF32, {3, 2}, std::as_bytes(std::span(w))};
  adapter.matrices[0].name = "model.embed_tokens.weight";
  adapter.matrices[0].transposed = true;
  ASSERT_TRUE(merge_lora(adapter, Content::kWeights, &m).ok());
  EXPECT_EQ(values(m.embedding), (std::vector<float>{31, -13, 39, -14, 47, -15}));
}

TEST(Lora, EveryMatrixOfALayerIsASumAndNothingElseChanges) {
  const std::pair<const char*, std::pair<int64_t, int64_t>> kModules[] = {
      {"self_attn.q_proj", {64, 64}}, {"self_attn.k_proj", {32, 64}},
      {"self_attn.v_proj", {32, 64}}, {"self_attn.o_proj", {64, 64}},
      {"mlp.gate_proj", {96, 64}},    {"mlp.up_proj", {96, 64}},
      {"mlp.down_proj", {64, 96}}};
  Tensors tensors;
  unsigned seed = 100;
  for (auto [module, shape] : kModules)
    add_matrix(&tensors, std::string("model.layers.1.") + module, shape.first, shape.second, 5,
               seed += 2);
  Adapter adapter(config(5, 12), tensors);
  Model m = tiny(false);
  ASSERT_EQ(merge(adapter, &m), "merged");
  Tensors base = test::tiny_tensors(false, false);
  const LayerWeights& w = m.layers[1];
  const Tensor* const kPlaces[] = {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down};
  for (size_t i = 0; i < std::size(kPlaces); ++i) {
    const std::string name = std::string("model.layers.1.") + kModules[i].first;
    SCOPED_TRACE(name);
    expect_sum(values(*kPlaces[i]), values(base[name + ".weight"]),
               values(tensors[kPrefix + name + ".lora_A.weight"]),
               values(tensors[kPrefix + name + ".lora_B.weight"]), 12.0 / 5, 5);
  }
  for (const Tensor* t : all_tensors(m)) {
    const bool is_norm = t->name.find("norm") != std::string::npos;
    if (is_norm || t->name.find("layers.1") == std::string::npos) {
      EXPECT_EQ(values(*t), values(base[t->name])) << t->name;
    }
  }
}

TEST(Lora, TheScaleIsAlphaOverRankOrItsRoot) {
  struct Case {
    std::string more;
    double scale;
  };
  const Case kCases[] = {
      {"", 16.0 / 4},
      {R"("use_rslora": true, )", 16.0 / 2},
      {R"("alpha_pattern": {"q_proj": 10}, )", 10.0 / 4},
      {R"("alpha_pattern": {"layers.0.self_attn.q_proj": 6, "k_proj": 1}, )", 6.0 / 4},
      {R"("alpha_pattern": {"layers.1.self_attn.q_proj": 6, "x_q_proj": 1}, )", 16.0 / 4}};
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.more);
    Tensors tensors;
    add_matrix(&tensors, "model.layers.0.self_attn.q_proj", 64, 64, 4, 7);
    Adapter adapter(config(4, 16, c.more), tensors);
    auto read = read_lora(adapter.folder.path());
    ASSERT_TRUE(read.ok()) << read.status().message();
    ASSERT_EQ(read->matrices.size(), 1u);
    EXPECT_EQ(read->matrices[0].scale, c.scale);
  }
}

// Of a rank of its own (rank_pattern) the file's matrices say it.
TEST(Lora, ARankOfItsOwnCounts) {
  Tensors tensors;
  add_matrix(&tensors, "model.layers.0.self_attn.q_proj", 64, 64, 2, 7);
  Adapter adapter(config(8, 16, R"("x": 1, )"), tensors);
  EXPECT_EQ(read_lora(adapter.folder.path())->matrices[0].scale, 8);
}

// What is added to the embedding is not added to a head that was tied to it: so it was trained.
TEST(Lora, AnEmbeddingLeavesItsHead) {
  Tensors tensors;
  tensors[std::string(kPrefix) + "model.embed_tokens.lora_embedding_A"] = f32({3, 40}, 5);
  tensors[std::string(kPrefix) + "model.embed_tokens.lora_embedding_B"] = f32({64, 3}, 6);
  Tensors base = test::tiny_tensors(false, true);
  const StRow& e = base["model.embed_tokens.weight"];
  // PEFT saves an embedding with what is added to it.
  tensors[std::string(kPrefix) + "model.embed_tokens.base_layer.weight"] = e;
  Adapter adapter(config(3, 6), tensors);
  Model m = tiny(true);
  ASSERT_EQ(merge(adapter, &m), "merged");
  EXPECT_FALSE(m.config.tied_head);
  EXPECT_EQ(values(m.head), values(e));
  std::vector<float> got = values(m.embedding), w = values(e);
  std::vector<float> a = values(
                         tensors[std::string(kPrefix) + "model.embed_tokens.lora_embedding_A"]),
                     b = values(
                         tensors[std::string(kPrefix) + "model.embed_tokens.lora_embedding_B"]);
  for (size_t t = 0; t < 40; ++t)
    for (size_t i = 0; i < 64; ++i) {
      double sum = w[t * 64 + i];
      for (size_t k = 0; k < 3; ++k)
        sum += 2.0 * static_cast<double>(a[k * 40 + t]) * static_cast<double>(b[i * 3 + k]);
      ASSERT_NEAR(got[t * 64 + i], sum, 5 * 0x1p-24);
    }
}

TEST(Lora, TensorsThatWereTrainedWholeReplaceTheModels) {
  Tensors tensors;
  tensors[std::string(kPrefix) + "lm_head.weight"] = f32({40, 64}, 5);
  tensors[std::string(kPrefix) + "model.norm.weight"] = f32({64}, 6);
  Adapter adapter(config(3, 6), tensors);
  Model m = tiny(true);
  ASSERT_EQ(merge(adapter, &m), "merged");
  EXPECT_EQ(values(m.head), values(tensors[std::string(kPrefix) + "lm_head.weight"]));
  EXPECT_EQ(values(m.final_norm), values(tensors[std::string(kPrefix) + "model.norm.weight"]));
  EXPECT_FALSE(m.config.tied_head);
}

// 16-bit matrices stay what they are: the sum, rounded to nearest. Quantised ones become f32.
TEST(Lora, TypesOfTheSum) {
  Tensors tensors;
  add_matrix(&tensors, "model.layers.0.mlp.down_proj", 64, 96, 4, 7);
  const std::vector<float>
      a = values(tensors[std::string(kPrefix) + "model.layers.0.mlp.down_proj.lora_A.weight"]),
      b = values(tensors[std::string(kPrefix) + "model.layers.0.mlp.down_proj.lora_B.weight"]);
  Adapter adapter(config(4, 4), tensors);
  for (TensorType type : {TensorType::kF16, TensorType::kBF16}) {
    Model m = tiny(false);
    std::vector<uint16_t> half(64 * 96);
    for (size_t i = 0; i < half.size(); ++i)  // 1 and 0.5 by turns
      half[i] = type == TensorType::kF16 ? (i % 2 ? 0x3c00 : 0x3800) : (i % 2 ? 0x3f80 : 0x3f00);
    m.layers[0].down = {"down", type, {64, 96}, std::as_bytes(std::span(half))};
    std::vector<float> w = values(m.layers[0].down);
    ASSERT_EQ(merge(adapter, &m), "merged");
    EXPECT_EQ(m.layers[0].down.type, type);
    std::vector<float> got = values(m.layers[0].down);
    // Half a unit in the last place of numbers below 2: 2^-11 and 2^-8.
    const double half_ulp = type == TensorType::kF16 ? 0x1p-11 : 0x1p-8;
    for (size_t o = 0; o < 64; ++o)
      for (size_t i = 0; i < 96; ++i) {
        double sum = w[o * 96 + i];
        for (size_t k = 0; k < 4; ++k)
          sum += static_cast<double>(b[o * 4 + k]) * static_cast<double>(a[k * 96 + i]);
        ASSERT_NEAR(got[o * 96 + i], sum, half_ulp + 0x1p-20);
      }
  }
  ThreadPool pool(1);
  Model plain = tiny(false);
  auto small = quantize_model(plain, TensorType::kQ8_0, pool);
  ASSERT_TRUE(small.ok());
  std::vector<float> w = values(small->layers[0].down);
  ASSERT_EQ(merge(adapter, &*small), "merged");
  EXPECT_EQ(small->layers[0].down.type, TensorType::kF32);
  expect_sum(values(small->layers[0].down), w, a, b, 1, 4);
}

TEST(Lora, WhatDoesNotFitTheModelIsListedAndChangesNothing) {
  Tensors tensors;
  add_matrix(&tensors, "model.layers.0.self_attn.q_proj", 64, 64, 4, 7);
  add_matrix(&tensors, "model.layers.0.self_attn.k_proj", 64, 64, 4, 9);
  add_matrix(&tensors, "model.layers.7.mlp.up_proj", 96, 64, 4, 11);
  add_matrix(&tensors, "model.layers.0.mlp.c_fc", 96, 64, 4, 13);
  Adapter adapter(config(4, 4), tensors);
  for (Content content : {Content::kWeights, Content::kShapes}) {
    Model m = tiny(false);
    std::vector<float> q = values(m.layers[0].q);
    const std::string said = merge(adapter, &m, content);
    EXPECT_THAT(said, HasSubstr("'model.layers.0.self_attn.k_proj.weight' is [32, 64], the "
                                "adapter's [64, 64]"));
    EXPECT_THAT(said, HasSubstr("the model has no 'model.layers.7.mlp.up_proj.weight'"));
    EXPECT_THAT(said, HasSubstr("the model has no 'model.layers.0.mlp.c_fc.weight'"));
    EXPECT_EQ(values(m.layers[0].q), q);
  }
}

TEST(Lora, ALongListIsCut) {
  Tensors tensors;
  for (int layer = 2; layer < 22; ++layer)
    add_matrix(&tensors, "model.layers." + std::to_string(layer) + ".mlp.up_proj", 96, 64, 1, 7);
  Adapter adapter(config(1, 1), tensors);
  Model m = tiny(false);
  EXPECT_THAT(merge(adapter, &m), HasSubstr("; and 12 more"));
}

// 65504 is f16's largest number, 3.4e38 bf16's and f32's: B A = 4 * 64 x 1000 is beyond the first.
TEST(Lora, SumsBeyondTheirTypeAreRefused) {
  Tensors tensors;
  tensors[std::string(kPrefix) + "model.layers.0.mlp.down_proj.lora_A.weight"] = {
      "F32", {1, 96}, test::floats(std::vector<float>(96, 1000))};
  tensors[std::string(kPrefix) + "model.layers.0.mlp.down_proj.lora_B.weight"] = {
      "F32", {64, 1}, test::floats(std::vector<float>(64, 256))};
  Adapter adapter(config(1, 1), tensors);
  std::vector<uint16_t> half(64 * 96);
  auto model_of = [&](TensorType type) {
    Model m = tiny(false);
    m.layers[0].down = {"down", type, {64, 96}, std::as_bytes(std::span(half))};
    return m;
  };
  Model f16 = model_of(TensorType::kF16), bf16 = model_of(TensorType::kBF16);
  EXPECT_EQ(merge(adapter, &f16),
            "'model.layers.0.mlp.down_proj.weight' with the adapter is beyond the range of F16; "
            "convert the model to bf16 or f32");
  EXPECT_EQ(values(f16.layers[0].down), std::vector<float>(64 * 96, 0));
  EXPECT_EQ(merge(adapter, &bf16), "merged");
  Adapter huge(config(1, 1e38), tensors);
  Model f32 = tiny(false);
  EXPECT_EQ(merge(huge, &f32),
            "'model.layers.0.mlp.down_proj.weight' with the adapter is beyond the range of F32");
}

// A plan counts what loading would make: types and shapes of a quantised and tied model's sums.
TEST(Lora, ShapesAloneBecomeThoseOfTheSum) {
  Tensors tensors;
  add_matrix(&tensors, "model.layers.0.self_attn.q_proj", 64, 64, 4, 7);
  tensors[std::string(kPrefix) + "model.embed_tokens.lora_embedding_A"] = f32({3, 40}, 5);
  tensors[std::string(kPrefix) + "model.embed_tokens.lora_embedding_B"] = f32({64, 3}, 6);
  tensors[std::string(kPrefix) + "model.norm.weight"] = f32({64}, 6);
  Adapter adapter(config(4, 4), tensors);
  ThreadPool pool(1);
  auto shapes = quantize_model(tiny(true), TensorType::kQ8_0, pool),
       sums = quantize_model(tiny(true), TensorType::kQ8_0, pool);
  ASSERT_TRUE(shapes.ok() && sums.ok());
  ASSERT_EQ(merge(adapter, &*shapes, Content::kShapes), "merged");
  ASSERT_EQ(merge(adapter, &*sums), "merged");
  EXPECT_EQ(sums->layers[0].q.type, TensorType::kF32);
  EXPECT_EQ(sums->layers[0].k.type, TensorType::kQ8_0);
  EXPECT_FALSE(shapes->config.tied_head);
  std::vector<const Tensor*> a = all_tensors(*shapes), b = all_tensors(*sums);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(b[i]->name);
    EXPECT_EQ(a[i]->type, b[i]->type);
    EXPECT_EQ(a[i]->shape, b[i]->shape);
    EXPECT_EQ(a[i]->data.size(), b[i]->data.size());
  }
}

// PEFT takes the first that fits, in the file's order; equal values have no order.
TEST(Lora, AlphasThatDisagreeAreRefused) {
  Tensors tensors;
  add_matrix(&tensors, "model.layers.0.self_attn.q_proj", 64, 64, 4, 7);
  auto with = [&](const std::string& patterns) {
    return Adapter(config(4, 16, R"("alpha_pattern": {)" + patterns + "}, "), tensors).refusal();
  };
  EXPECT_THAT(with(R"("q_proj": 6, "self_attn.q_proj": 8)"),
              HasSubstr("alpha_pattern has several values for 'model.layers.0.self_attn.q_proj'"));
  EXPECT_EQ(with(R"("q_proj": 6, "self_attn.q_proj": 6, "k_proj": 8)"), "accepted");
}

TEST(Lora, OtherKindsOfAdaptersAreRefused) {
  Tensors tensors;
  add_matrix(&tensors, "model.layers.0.self_attn.q_proj", 64, 64, 4, 7);
  const std::pair<const char*, const char*> kCases[] = {
      {R"("alpha_pattern": {"^model.*q_proj": 3}, )", "regular expressions are not supported"},
      {R"("alora_invocation_tokens": [1], )", "alora_invocation_tokens is not supported"},
      {R"("use_qalora": true, )", "use_qalora is not supported"}};
  for (auto [more, want] : kCases)
    EXPECT_THAT(Adapter(config(4, 4, more), tensors).refusal(), HasSubstr(want));
  // Values in place of the usual ones.
  const std::string kSwaps[][3] = {
      {R"("use_dora": false)", R"("use_dora": true)", "use_dora is not supported"},
      {R"("bias": "none")", R"("bias": "all")", "bias is not \"none\""},
      {R"("init_lora_weights": true)", R"("init_lora_weights": "pissa_niter_4")",
       "begins by changing the base weights"},
      {R"("peft_type": "LORA")", R"("peft_type": "IA3")",
       "'peft_type' is 'IA3'; LORA is supported"},
      {R"("r": 4)", R"("r": 0)", "r is out of range"},
      {R"("r": 4, )", "", "r"},
      {R"("layer_replication": null)", R"("layer_replication": [[0, 2]])",
       "layer_replication is not supported"}};
  for (const auto& [from, to, want] : kSwaps) {
    std::string json = config(4, 4);
    json.replace(json.find(from), from.size(), to);
    EXPECT_THAT(Adapter(json, tensors).refusal(), HasSubstr(want)) << to;
  }
  EXPECT_EQ(Adapter(config(4, 4, R"("init_x": "pissa", )"), tensors).refusal(), "accepted");
}

TEST(Lora, FilesThatAreNoAdapterAreRefused) {
  const std::string q = std::string(kPrefix) + "model.layers.0.self_attn.q_proj";
  Tensors good;
  add_matrix(&good, "model.layers.0.self_attn.q_proj", 64, 64, 4, 7);
  auto refusal = [&](const Tensors& t) { return Adapter(config(4, 4), t).refusal(); };
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_THAT(refusal({}), HasSubstr("there are no tensors"));
  Tensors t = good;
  t.erase(q + ".lora_B.weight");
  EXPECT_THAT(refusal(t), HasSubstr("has only one of A and B"));
  t = good;
  t[q + ".lora_B.weight"] = f32({64, 5}, 1);
  EXPECT_THAT(refusal(t), HasSubstr("A [4, 64] and B [64, 5] have no rank in common"));
  t = good;
  t[q + ".lora_magnitude_vector"] = f32({64}, 1);
  EXPECT_THAT(refusal(t), HasSubstr("lora_magnitude_vector' is no part of a LoRA adapter"));
  t = good;
  t[q + ".lora_B.bias"] = f32({64}, 1);
  EXPECT_THAT(refusal(t), HasSubstr("lora_B.bias' is no part"));
  t = good;
  t[q + ".lora_A.weight"].data.replace(40, 4, test::floats({NAN}));
  EXPECT_THAT(refusal(t), HasSubstr("holds no finite numbers"));
  t = good;
  t[q + ".lora_A.weight"].dtype = "I32";
  EXPECT_THAT(refusal(t), HasSubstr("holds no finite numbers"));
  Folder nothing;
  EXPECT_FALSE(is_lora_folder(nothing.path()));
  EXPECT_THAT(read_lora(nothing.path()).status().message(), HasSubstr("adapter_config.json"));
  nothing.put("adapter_config.json", config(4, 4));
  EXPECT_TRUE(is_lora_folder(nothing.path()));
  EXPECT_THAT(read_lora(nothing.path()).status().message(), HasSubstr("adapter_model.safetensors"));
  nothing.put("adapter_config.json", std::string(100, '['));
  EXPECT_THAT(read_lora(nothing.path()).status().message(), HasSubstr("adapter_config.json"));
}

}  // namespace
}  // namespace pf
