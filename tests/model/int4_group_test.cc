// Truth: the definition of a group of 128 (one scale, one minimum), round to nearest over its range
// by its definition, and the blocks of 32 that any reader of GGUF sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "model/gguf.h"
#include "model/int4_rows.h"
#include "model/quantize.h"
#include "model/quantize_search.h"
#include "tests/model/files.h"

namespace pf {
namespace {

using test::Folder;

constexpr TensorType kFourBits[] = {TensorType::kQ4_0, TensorType::kQ4_1};

std::vector<std::byte> blocks_of(TensorType type, const std::vector<float>& x, int group) {
  auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(type, n)));
  Status s = quantize_row(type, x.data(), n, bytes.data(), group);
  EXPECT_TRUE(s.ok()) << s.message();
  return bytes;
}
std::vector<float> round_trip(TensorType type, const std::vector<float>& x, int group) {
  std::vector<std::byte> bytes = blocks_of(type, x, group);
  std::vector<float> out(x.size());
  dequantize_rows({"t", type, {static_cast<int64_t>(x.size())}, bytes}, 0, 1, out.data());
  return out;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  return sum;
}

// Round to nearest over the range of 128 values, scales in binary16.
std::vector<float> nearest(TensorType type, const std::vector<float>& x) {
  const bool has_min = type == TensorType::kQ4_1;
  float low = *std::min_element(x.begin(), x.end()), high = *std::max_element(x.begin(), x.end());
  float d = has_min ? (high - low) / 15 : (-low > high ? low : high) / -8, m = has_min ? low : 0;
  d = to_float(to_f16(d)), m = to_float(to_f16(m));
  std::vector<float> out;
  for (float v : x) {
    float q = d == 0 ? 0 : std::nearbyint((v - m) / d);
    out.push_back(d * std::clamp(q, has_min ? 0.0f : -8.0f, has_min ? 15.0f : 7.0f) + m);
  }
  return out;
}

TEST(Int4Group, OfEveryKindOfValuesIsNeverWorseThanRoundToNearest) {
  for (TensorType type : kFourBits) {
    double ours = 0, theirs = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
      std::vector<float> x = test::random_floats(128, seed);
      float scale = std::ldexp(1.0f, int(seed % 40) - 28);
      for (float& v : x) v = v * scale + (seed % 3 == 0 ? scale : 0);
      double a = squared_error(x, round_trip(type, x, 128)), b = squared_error(x, nearest(type, x));
      // Errors are compared as sums in float: 128 additions err by 2^-17 at most.
      EXPECT_LE(a, b * (1 + 0x1p-16)) << type_name(type) << " seed " << seed;
      if (seed % 40 == 28) ours += a, theirs += b;  // scale 1
    }
    EXPECT_LT(ours, theirs) << type_name(type);
  }
}

TEST(Int4Group, IsFourBlocksOfOneScaleAndNoOther) {
  const std::vector<float> x = test::random_floats(128 * 3, 5);
  for (TensorType type : kFourBits) {
    const size_t block = static_cast<size_t>(block_shape(type).bytes),
                 scales = type == TensorType::kQ4_1 ? 4 : 2;
    const std::vector<std::byte> wide = blocks_of(type, x, 128), narrow = blocks_of(type, x, 32);
    auto same = [&](const std::vector<std::byte>& bytes, size_t a, size_t b) {
      return std::memcmp(&bytes[a * block], &bytes[b * block], scales) == 0;
    };
    for (size_t g = 0; g < 3; ++g) {
      for (size_t b = 1; b < 4; ++b) EXPECT_TRUE(same(wide, 4 * g, 4 * g + b));
      EXPECT_FALSE(same(narrow, 4 * g, 4 * g + 1));
    }
    EXPECT_FALSE(same(wide, 0, 4));
    EXPECT_LT(squared_error(x, round_trip(type, x, 32)),
              squared_error(x, round_trip(type, x, 128)));
  }
}

TEST(Int4Group, HasTheSameBitsInEveryInstructionSetAndCompany) {
  constexpr int64_t kGroups = 37;
  std::vector<float> x = test::random_floats(kGroups * 128, 11);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(x[i], static_cast<int>(i / 128 % 50) - 36) + (i / 128 % 7 == 1 ? 1.0f : 0);
  struct Found {
    std::vector<float> q = std::vector<float>(kGroups * 128), d = std::vector<float>(kGroups),
                       m = std::vector<float>(kGroups);
  };
  for (bool has_min : {false, true}) {
    auto find = [&](QuantSearcher search, int64_t first, int64_t n, Found* f) {
      QuantSearch s;
      s.group = 128;
      s.x = x.data() + first * 128, s.n_groups = n, s.has_minimum = has_min;
      s.low = has_min ? 0 : -8, s.high = has_min ? 15 : 7, s.nearest_level = -8;
      s.q = f->q.data() + first * 128, s.d = f->d.data() + first, s.m = f->m.data() + first;
      search(s);
    };
    Found want, alone;
    find(quant_searcher_portable(), 0, kGroups, &want);
    for (int64_t g = 0; g < kGroups; ++g) find(choose_quant_searcher(), g, 1, &alone);
    EXPECT_EQ(alone.q, want.q);
    for (QuantSearcher search : {quant_searcher_avx2(), quant_searcher_avx512()}) {
      if (search == nullptr) continue;
      Found got;
      find(search, 0, kGroups, &got);
      EXPECT_EQ(got.q, want.q);
      EXPECT_EQ(got.d, want.d);
      EXPECT_EQ(got.m, want.m);
    }
  }
}

// A decoder whose rows are multiples of 128, but for those of `down`: F = 96.
struct Files : Folder {
  Files() {
    put("config.json",
        R"({"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 128, "head_dim": 64,
            "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1,
            "max_position_embeddings": 512, "vocab_size": 40, "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0, "tie_word_embeddings": true})");
    std::map<std::string, test::StRow> all;
    unsigned seed = 1;
    auto add = [&](const std::string& name, int64_t rows, int64_t cols) {
      std::vector<int64_t> shape = {rows, cols};
      if (rows == 1) shape = {cols};
      all[name] = {"F32", shape,
                   test::floats(test::random_floats(static_cast<size_t>(rows * cols), seed++))};
    };
    add("model.embed_tokens.weight", 40, 128);
    add("model.norm.weight", 1, 128);
    const std::string p = "model.layers.0.";
    add(p + "input_layernorm.weight", 1, 128);
    add(p + "post_attention_layernorm.weight", 1, 128);
    add(p + "self_attn.q_proj.weight", 128, 128);
    add(p + "self_attn.k_proj.weight", 64, 128);
    add(p + "self_attn.v_proj.weight", 64, 128);
    add(p + "self_attn.o_proj.weight", 128, 128);
    add(p + "mlp.gate_proj.weight", 96, 128);
    add(p + "mlp.up_proj.weight", 96, 128);
    add(p + "mlp.down_proj.weight", 128, 96);
    put("model.safetensors", test::safetensors(all));
  }
};

// Row r of a tensor as groups of `group`, or what is wrong with it.
Result<std::vector<f16>> scales_of(const Tensor& t, int group) {
  std::vector<uint8_t> q(static_cast<size_t>(t.cols()));
  std::vector<f16> d(q.size() / static_cast<size_t>(group)), m = d;
  if (Status s = read_int4_row(t, 1, group, {q.data(), d.data(), m.data()}); !s.ok()) return s;
  return d;
}

TEST(Int4Group, OfAFileIsThereWhenItIsLoaded) {
  const Files folder;
  for (TensorType type : kFourBits) {
    SCOPED_TRACE(type_name(type));
    auto report = quantize_file(folder.path(), folder / "wide.gguf", type, 2, 128);
    ASSERT_TRUE(report.ok()) << report.status().message();
    auto wide = load_model(folder / "wide.gguf");
    ASSERT_TRUE(wide.ok()) << wide.status().message();
    const LayerWeights& w = wide->layers[0];
    EXPECT_EQ(wide->config.int4_group, 128);
    auto group_of = [&](std::initializer_list<const Tensor*> tensors) {
      return int4_group_of(wide->config.int4_group, std::span(tensors.begin(), tensors.size()));
    };
    EXPECT_EQ(group_of({&w.q, &w.k, &w.v}), 128);
    EXPECT_EQ(group_of({&w.down}), 32);      // rows of 96
    EXPECT_EQ(group_of({&wide->head}), 32);  // Q8_0
    for (const Tensor* t : {&w.q, &w.o, &w.up}) {
      auto scales = scales_of(*t, 128);
      ASSERT_TRUE(scales.ok()) << scales.status().message();
      EXPECT_EQ(scales->size(), 1u);
    }
    EXPECT_FALSE(scales_of(w.down, 32)->empty());

    // To groups of 32: nothing changes but the word of the file. Back: all is quantised again.
    ASSERT_TRUE(quantize_file(folder / "wide.gguf", folder / "narrow.gguf", type, 2).ok());
    auto narrow = load_model(folder / "narrow.gguf");
    ASSERT_TRUE(narrow.ok()) << narrow.status().message();
    EXPECT_EQ(narrow->config.int4_group, 32);
    EXPECT_TRUE(std::equal(w.q.data.begin(), w.q.data.end(), narrow->layers[0].q.data.begin()));
    ASSERT_TRUE(quantize_file(folder.path(), folder / "fine.gguf", type, 2).ok());
    auto again = quantize_file(folder / "fine.gguf", folder / "again.gguf", type, 2, 128);
    ASSERT_TRUE(again.ok()) << again.status().message();
    for (const QuantizedTensor& t : again->tensors)
      EXPECT_EQ(t.relative_error > 0, t.to == type && t.name != "blk.0.ffn_down.weight") << t.name;
    EXPECT_TRUE(scales_of(load_model(folder / "again.gguf")->layers[0].q, 128).ok());
  }
}

TEST(Int4Group, ThatAFileOnlyClaimsIsRefused) {
  const Files folder;
  ASSERT_TRUE(quantize_file(folder.path(), folder / "fine.gguf", TensorType::kQ4_1, 1).ok());
  auto fine = load_model(folder / "fine.gguf");
  ASSERT_TRUE(fine.ok());
  Result<std::vector<f16>> scales = scales_of(fine->layers[0].q, 128);
  ASSERT_FALSE(scales.ok());
  EXPECT_NE(scales.status().message().find("write it anew with `quantize`"), std::string::npos);
  EXPECT_FALSE(quantize_file(folder.path(), folder / "x.gguf", TensorType::kQ4_1, 1, 64).ok());

  ASSERT_TRUE(quantize_file(folder.path(), folder / "wide.gguf", TensorType::kQ4_1, 1, 128).ok());
  std::ifstream in(folder / "wide.gguf", std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  const std::string key = "pilotfish.int4_group";
  const size_t value = bytes.find(key) + key.size() + 4;  // behind the type of the value
  ASSERT_EQ(bytes.substr(value, 4), test::raw(uint32_t{128}));
  for (uint32_t bad : {0u, 64u, 256u, 0x80000000u}) {
    bytes.replace(value, 4, test::raw(bad));
    folder.put("bad.gguf", bytes);
    auto loaded = load_model(folder / "bad.gguf");
    ASSERT_FALSE(loaded.ok()) << bad;
    EXPECT_NE(loaded.status().message().find(key), std::string::npos) << loaded.status().message();
  }
}

}  // namespace
}  // namespace pf
