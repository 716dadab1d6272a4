// Truth: goldens of SmolLM2-135M-Instruct.Q4_1.gguf made with another implementation
// (tests/golden/gguf.json, weights_sample.json).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/gguf.h"
#include "model/model.h"

namespace pf {
namespace {

using nlohmann::json;

const std::string kPath = PF_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

json golden(const std::string& name) {
  return json::parse(std::ifstream(PF_SOURCE_DIR "/tests/golden/" + name));
}

class RealModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kPath)) {
      GTEST_SKIP() << kPath << " is not here: scripts/get_model.sh smollm2 fetches it";
    }
  }
};

TEST_F(RealModel, TensorTableEqualsTheGolden) {
  auto file = GgufFile::open(kPath);
  ASSERT_TRUE(file.ok()) << file.status().message();
  json want = golden("gguf.json");
  EXPECT_EQ(file->data_start(), want["data_start"]);
  EXPECT_EQ(file->version(), want["kv"]["GGUF.version"]);
  EXPECT_EQ(file->entries().size(), want["kv"]["GGUF.kv_count"]);
  ASSERT_EQ(file->tensors().size(), want["tensors"].size());
  MappedFile raw = MappedFile::open(kPath).take();
  size_t i = 0;
  for (const json& row : want["tensors"]) {
    const Tensor& t = file->tensors()[i++];
    ASSERT_EQ(t.name, row["name"]);
    EXPECT_EQ(type_name(t.type), row["type"].get<std::string>());
    std::vector<int64_t> ne(t.shape.rbegin(), t.shape.rend());
    EXPECT_EQ(ne, row["ne"].get<std::vector<int64_t>>());
    ASSERT_EQ(t.data.size(), row["nbytes"]);
    size_t at = row["abs_offset"];
    EXPECT_EQ(std::memcmp(t.data.data(), raw.bytes().data() + at, t.data.size()), 0) << t.name;
  }
}

TEST_F(RealModel, MetadataEqualsTheGolden) {
  auto file = GgufFile::open(kPath);
  ASSERT_TRUE(file.ok());
  json all = golden("gguf.json");
  for (const auto& [key, want] : all["kv"].items()) {
    if (key.starts_with("GGUF.")) continue;
    SCOPED_TRACE(key);
    if (want.is_string()) {
      EXPECT_EQ(file->find<std::string_view>(key), want.get<std::string>());
    } else if (want.is_boolean()) {
      EXPECT_EQ(file->find<bool>(key), want.get<bool>());
    } else if (want.is_number_integer()) {
      EXPECT_EQ(file->find<int64_t>(key), want.get<int64_t>());
    } else if (want.is_number_float()) {
      EXPECT_EQ(file->find<double>(key), want.get<double>());
    } else if (want.is_object()) {
      auto array = file->find<GgufArray>(key);
      ASSERT_TRUE(array.has_value());
      EXPECT_EQ(array->n, want["len"].get<uint64_t>());
    }
  }
  auto merges = file->find_strings("tokenizer.ggml.merges");
  ASSERT_TRUE(merges.has_value());
  EXPECT_EQ((*merges)[0], "\u0120 t");
  auto types = file->find_integers("tokenizer.ggml.token_type");
  ASSERT_TRUE(types.has_value());
  EXPECT_EQ((*types)[0], 3);
}

TEST_F(RealModel, ConfigIsThatOfSmolLM2) {
  auto model = load_model(kPath);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelConfig& c = model->config;
  EXPECT_EQ(c.architecture, "llama");
  EXPECT_EQ(c.n_layers, 30);
  EXPECT_EQ(model->layers.size(), 30u);
  EXPECT_EQ(c.width, 576);
  EXPECT_EQ(c.ffn_width, 1536);
  EXPECT_EQ(c.n_heads, 9);
  EXPECT_EQ(c.n_kv_heads, 3);
  EXPECT_EQ(c.head_width, 64);
  EXPECT_EQ(c.vocabulary_size, 49152);
  EXPECT_EQ(c.max_context, 8192);
  EXPECT_EQ(c.rope_theta, 100000.0f);
  EXPECT_EQ(c.norm_epsilon, 1e-5f);
  EXPECT_TRUE(c.tied_head);
  EXPECT_FALSE(c.qkv_bias);
  EXPECT_EQ(model->head.data.data(), model->embedding.data.data());
  EXPECT_EQ(c.generation.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_EQ(c.generation.bos_token_id, 1);
}

// The golden's names are Hugging Face's, and so is its row order of q and k.
const Tensor& by_golden_name(const Model& m, const std::string& name) {
  if (name == "model.embed_tokens.weight") return m.embedding;
  if (name == "model.norm.weight") return m.final_norm;
  size_t n = 0, layer = std::stoul(name.substr(13), &n);
  std::string rest = name.substr(13 + n + 1);
  const LayerWeights& w = m.layers.at(layer);
  if (rest == "self_attn.q_proj.weight") return w.q;
  if (rest == "self_attn.k_proj.weight") return w.k;
  if (rest == "self_attn.v_proj.weight") return w.v;
  if (rest == "mlp.down_proj.weight") return w.down;
  if (rest == "mlp.gate_proj.weight") return w.gate;
  EXPECT_EQ(rest, "input_layernorm.weight");
  return w.attention_norm;
}

TEST_F(RealModel, WeightsEqualTheGolden) {
  auto model = load_model(kPath);
  ASSERT_TRUE(model.ok()) << model.status().message();
  json all = golden("weights_sample.json");
  for (const auto& [name, want] : all.items()) {
    SCOPED_TRACE(name);
    const Tensor& t = by_golden_name(*model, name);
    ASSERT_EQ(t.shape, want["shape"].get<std::vector<int64_t>>());
    std::vector<float> values(static_cast<size_t>(t.size()));
    dequantize_rows(t, 0, t.rows(), values.data());
    std::vector<float> first = want["gguf_f32_first16"];
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(values[i], first[i]) << i;
    double sum = 0, magnitude = 0;
    for (float v : values) sum += v, magnitude += std::abs(v);
    // Both sums are in double: n additions err by at most n * 2^-53 of the sum of magnitudes.
    double bound = static_cast<double>(values.size()) * 0x1p-53 * magnitude;
    EXPECT_NEAR(sum, want["gguf_f32_sum"].get<double>(), bound);
  }
}

const std::string kDraftPath = PF_SOURCE_DIR "/models/drafts/smollm2-3l/model.gguf";

TEST(ShippedDraft, IsAThreeLayerDraftWithItsOwnVocabulary) {
  auto draft = load_model(kDraftPath, Role::kDraft);
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  EXPECT_EQ(draft->config.name, "smollm2-3l");
  EXPECT_EQ(draft->config.n_layers, 3);
  EXPECT_EQ(draft->config.vocabulary_size, 8192);
  EXPECT_EQ(draft->config.n_tokens, 49152);
  EXPECT_EQ(draft->config.rope_theta, 100000);
  EXPECT_EQ(draft->config.generation.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_EQ(draft->head_tokens.size(), 8192u);
  EXPECT_TRUE(draft->shares_embedding);
  EXPECT_LE(std::filesystem::file_size(kDraftPath), 20'000'000u);
  ThreadPool pool(2);
  EXPECT_TRUE(check_finite(*draft, pool).ok());
}

// The draft's head was made of the target's embedding rows: whatever 4 bits cost, each row must
// still point where its token's embedding does.
TEST_F(RealModel, TheDraftsHeadRowsAreTheTargetsEmbeddings) {
  auto draft = load_model(kDraftPath, Role::kDraft);
  auto target = load_model(kPath);
  ASSERT_TRUE(draft.ok() && target.ok());
  Status fits = check_fits(*draft, *target);
  ASSERT_TRUE(fits.ok()) << fits.message();
  std::vector<float> head(576), embedding(576);
  for (int64_t row = 0; row < 8192; ++row) {
    dequantize_rows(draft->head, row, 1, head.data());
    dequantize_rows(target->embedding, draft->head_tokens[static_cast<size_t>(row)], 1,
                    embedding.data());
    double squares = 0, size = 0;
    for (size_t i = 0; i < 576; ++i) {
      squares += std::pow(double{head[i]} - embedding[i], 2);
      size += std::pow(double{embedding[i]}, 2);
    }
    ASSERT_LT(std::sqrt(squares / size), 0.15) << row;  // 4-bit groups of 32: about .07
  }
}

TEST_F(RealModel, EveryWeightIsFinite) {
  auto model = load_model(kPath);
  ASSERT_TRUE(model.ok());
  ThreadPool pool(2);
  Status s = check_finite(*model, pool);
  EXPECT_TRUE(s.ok()) << s.message();
}

}  // namespace
}  // namespace pf
