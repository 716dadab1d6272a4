// Truth: what comes back from the stored blocks, against round to nearest by its definition and
// against the original weights.
#include "model/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "model/gguf.h"
#include "model/quantize_search.h"
#include "tests/model/files.h"

namespace pf {
namespace {

using test::Folder;

constexpr TensorType kTypes[] = {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0};

std::vector<float> round_trip(TensorType type, const std::vector<float>& x) {
  auto n = static_cast<int64_t>(x.size());
  std::vector<std::byte> bytes(static_cast<size_t>(row_bytes(type, n)));
  Status s = quantize_row(type, x.data(), n, bytes.data());
  EXPECT_TRUE(s.ok()) << s.message();
  std::vector<float> out(x.size());
  dequantize_rows({"t", type, {n}, bytes}, 0, 1, out.data());
  return out;
}

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  return sum;
}

// Round to nearest over the group's range, scales in binary16.
std::vector<float> nearest(TensorType type, const std::vector<float>& x) {
  std::vector<float> out(x.size());
  for (size_t at = 0; at < x.size(); at += 32) {
    auto begin = x.begin() + int64_t(at), end = begin + 32;
    float low = *std::min_element(begin, end), high = *std::max_element(begin, end);
    float extreme = -low > high ? low : high, m = type == TensorType::kQ4_1 ? low : 0;
    float d = type == TensorType::kQ4_1   ? (high - low) / 15
              : type == TensorType::kQ4_0 ? extreme / -8
                                          : std::fabs(extreme) / 127;
    d = to_float(to_f16(d)), m = to_float(to_f16(m));
    float least = type == TensorType::kQ4_1 ? 0 : type == TensorType::kQ4_0 ? -8 : -127;
    float most = type == TensorType::kQ4_1 ? 15 : type == TensorType::kQ4_0 ? 7 : 127;
    for (size_t i = at; i < at + 32; ++i) {
      float q = d == 0 ? 0 : std::clamp(std::nearbyint((x[i] - m) / d), least, most);
      out[i] = d * q + m;
    }
  }
  return out;
}

TEST(QuantizeRow, BeatsRoundToNearest) {
  std::vector<float> x = test::random_floats(32 * 512, 3);
  double four = squared_error(x, round_trip(TensorType::kQ4_0, x)) /
                squared_error(x, nearest(TensorType::kQ4_0, x));
  double asymmetric = squared_error(x, round_trip(TensorType::kQ4_1, x)) /
                      squared_error(x, nearest(TensorType::kQ4_1, x));
  double eight = squared_error(x, round_trip(TensorType::kQ8_0, x)) /
                 squared_error(x, nearest(TensorType::kQ8_0, x));
  RecordProperty("q4_0_ratio", std::to_string(four));
  RecordProperty("q4_1_ratio", std::to_string(asymmetric));
  RecordProperty("q8_0_ratio", std::to_string(eight));
  // A brute-force grid over scales gives .887 for Q4_0 and .764 for Q4_1: the search is at the
  // floor of the format.
  EXPECT_LT(four, 0.90) << four;
  EXPECT_LT(asymmetric, 0.80) << asymmetric;
  EXPECT_LT(eight, 0.90) << eight;
}

TEST(QuantizeRow, IsNeverWorseInAnyGroup) {
  for (TensorType type : kTypes) {
    for (unsigned seed = 0; seed < 300; ++seed) {
      std::vector<float> x = test::random_floats(32, seed);
      float scale = std::ldexp(1.0f, int(seed % 40) - 28);
      for (float& v : x) v = v * scale + (seed % 3 == 0 ? scale : 0);
      double ours = squared_error(x, round_trip(type, x));
      double theirs = squared_error(x, nearest(type, x));
      // The search compares errors summed in float: 32 additions err by 2^-19 at most.
      EXPECT_LE(ours, theirs * (1 + 0x1p-18)) << type_name(type) << " seed " << seed;
    }
  }
}

// Lanes are groups: no width of the registers, and no neighbour, changes a group's bits.
TEST(QuantizeRow, TheSearchGivesEveryGroupTheSameBitsInEveryInstructionSet) {
  constexpr int64_t kGroups = 203;  // no multiple of any number of lanes
  std::vector<float> x = test::random_floats(kGroups * 32, 11);
  for (int64_t g = 0; g < kGroups; ++g)
    for (int64_t i = 0; i < 32; ++i) {
      float& v = x[static_cast<size_t>(g * 32 + i)];
      v *= std::ldexp(1.0f, static_cast<int>(g % 50) - 36);
      if (g % 7 == 1) v += 1;
      if (g % 11 == 2) v = g % 2 == 0 ? 0 : 0.75f;  // all alike
      if (g % 13 == 3) v = std::nearbyint(v * 1e30f > 0 ? 3.0f : -4.0f);
    }
  struct Found {
    std::vector<float> q, d, m;
  };
  for (auto [low, high, nearest] : {std::tuple{0.f, 15.f, 0.f}, {-8, 7, -8}, {-127, 127, 127}}) {
    auto find = [&](QuantSearcher search, int64_t first, int64_t n) {
      Found f{std::vector<float>(static_cast<size_t>(n * 32)),
              std::vector<float>(static_cast<size_t>(n)),
              std::vector<float>(static_cast<size_t>(n))};
      QuantSearch s;
      s.x = x.data() + first * 32, s.n_groups = n, s.has_minimum = low == 0;
      s.low = low, s.high = high, s.nearest_level = nearest;
      s.q = f.q.data(), s.d = f.d.data(), s.m = f.m.data();
      search(s);
      return f;
    };
    Found want = find(quant_searcher_portable(), 0, kGroups);
    for (QuantSearcher search : {quant_searcher_avx2(), quant_searcher_avx512()}) {
      if (search == nullptr) continue;
      Found got = find(search, 0, kGroups);
      EXPECT_EQ(got.q, want.q);
      EXPECT_EQ(got.d, want.d);
      EXPECT_EQ(got.m, want.m);
    }
    for (int64_t g = 0; g < kGroups; ++g) {
      Found alone = find(choose_quant_searcher(), g, 1);
      ASSERT_EQ(alone.d[0], want.d[static_cast<size_t>(g)]) << g;
      ASSERT_EQ(alone.m[0], want.m[static_cast<size_t>(g)]) << g;
      ASSERT_TRUE(std::equal(alone.q.begin(), alone.q.end(), want.q.begin() + g * 32)) << g;
    }
  }
}

TEST(QuantizeRow, AsymmetricKeepsMoreThanSymmetric) {
  std::vector<float> x = test::random_floats(32 * 512, 4);
  EXPECT_LT(squared_error(x, round_trip(TensorType::kQ4_1, x)),
            squared_error(x, round_trip(TensorType::kQ4_0, x)));
}

TEST(QuantizeRow, ValuesOnTheGridComeBackExactly) {
  std::vector<float> sixteen, symmetric, bytes;
  for (int i = 0; i < 32; ++i) {
    sixteen.push_back(0.25f * float(i % 16) - 1);  // d = 0.25, m = -1
    symmetric.push_back(0.5f * float(i % 16 - 8));
    bytes.push_back(0.125f * float(i * 8 - 127));
  }
  EXPECT_EQ(round_trip(TensorType::kQ4_1, sixteen), sixteen);
  EXPECT_EQ(round_trip(TensorType::kQ4_0, symmetric), symmetric);
  EXPECT_EQ(round_trip(TensorType::kQ8_0, bytes), bytes);
}

TEST(QuantizeRow, DegenerateGroupsGiveFiniteNumbers) {
  for (TensorType type : kTypes) {
    for (float value : {0.0f, -0.0f, 1.0f, -3.0f, 65504.0f, -65504.0f, 1e-7f, 1e-20f, 1e-45f}) {
      std::vector<float> same(32, value), one(32, 0), two(32, value);
      one[5] = value;
      for (size_t i = 0; i < 32; i += 2) two[i] = -value;
      for (const auto& x : {same, one, two}) {
        std::vector<float> y = round_trip(type, x);
        float bound = std::max(std::fabs(value) * 0.1f, 2.4e-7f);  // or 8 halves of the least scale
        for (size_t i = 0; i < 32; ++i) ASSERT_NEAR(y[i], x[i], bound) << type_name(type);
      }
    }
  }
}

TEST(QuantizeRow, RefusesWhatNoScaleCanHold) {
  for (TensorType type : kTypes) {
    for (float bad : {NAN, -NAN, INFINITY, -INFINITY, 65536.0f}) {
      std::vector<float> x(64, 0.5f);
      x[40] = bad;
      std::byte out[128];
      EXPECT_FALSE(quantize_row(type, x.data(), 64, out).ok()) << bad;
    }
  }
}

// Largest relative RMS error of a tensor of normal weights, with room: Q4_0 .09, Q4_1 .075.
double tolerance(TensorType type) { return type == TensorType::kQ8_0 ? 0.01 : 0.11; }

std::vector<float> values(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.size()));
  dequantize_rows(t, 0, t.rows(), out.data());
  return out;
}

void expect_close(const Model& got, const Model& want, double most) {
  auto a = all_tensors(got), b = all_tensors(want);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(b[i]->name);
    ASSERT_EQ(a[i]->shape, b[i]->shape);
    std::vector<float> x = values(*a[i]), y = values(*b[i]);
    double squares = squared_error(x, y), size = squared_error(y, std::vector<float>(y.size(), 0));
    EXPECT_LE(std::sqrt(squares / size), b[i]->shape.size() < 2 ? 0 : most);
  }
}

TEST(QuantizeFile, RoundTripsEveryFamilyAndType) {
  for (std::string family : {"llama", "qwen2", "mistral"}) {
    for (TensorType type : kTypes) {
      SCOPED_TRACE(family + " " + std::string(type_name(type)));
      Folder folder;
      bool tied = family == "qwen2";
      folder.put("config.json",
                 test::tiny_config(family, std::string(", \"rope_theta\": 5000.0, "
                                                       "\"eos_token_id\": [1, 2, 3, 4]") +
                                               (tied ? ", \"tie_word_embeddings\": true" : "")));
      folder.put("model.safetensors", test::safetensors(test::tiny_tensors(tied, tied)));
      auto before = load_model(folder.path());
      ASSERT_TRUE(before.ok()) << before.status().message();
      auto report = quantize_file(folder.path(), folder / "out.gguf", type, 2);
      ASSERT_TRUE(report.ok()) << report.status().message();
      auto after = load_model(folder / "out.gguf");
      ASSERT_TRUE(after.ok()) << after.status().message();
      expect_close(*after, *before, tolerance(type));
      EXPECT_EQ(after->config.rope_theta, 5000);
      EXPECT_EQ(after->config.tied_head, tied);
      EXPECT_EQ(after->config.qkv_bias, tied);
      EXPECT_EQ(after->config.sliding_window, before->config.sliding_window);
      std::vector<int32_t> ends = after->config.generation.eos_token_ids;
      std::sort(ends.begin(), ends.end());
      EXPECT_EQ(ends, (std::vector<int32_t>{1, 2, 3, 4}));
      EXPECT_EQ(after->layers[0].q.type, type);
      EXPECT_EQ(after->layers[0].attention_norm.type, TensorType::kF32);
      EXPECT_EQ(after->embedding.type, TensorType::kQ8_0);
      EXPECT_EQ(report->tensors.size(), all_tensors(*after).size());
      EXPECT_EQ(report->tensors[1].name, "blk.0.attn_norm.weight");
      for (const QuantizedTensor& t : report->tensors) EXPECT_LT(t.relative_error, 0.11) << t.name;
    }
  }
}

TEST(QuantizeFile, RopeScalingSurvives) {
  const char* kScalings[] = {
      R"({"rope_type": "linear", "factor": 4.0})",
      R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64})",
      R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512})",
      R"({"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.9, "beta_fast": 16})"};
  for (const char* scaling : kScalings) {
    SCOPED_TRACE(scaling);
    Folder folder;
    folder.put("config.json",
               test::tiny_config("llama", std::string(", \"rope_theta\": 10000.0, ") +
                                              "\"rope_scaling\": " + scaling));
    folder.put("model.safetensors", test::safetensors(test::tiny_tensors(false, false)));
    auto before = load_model(folder.path());
    ASSERT_TRUE(before.ok()) << before.status().message();
    ASSERT_TRUE(quantize_file(folder.path(), folder / "out.gguf", TensorType::kQ8_0, 1).ok());
    auto after = load_model(folder / "out.gguf");
    ASSERT_TRUE(after.ok()) << after.status().message();
    EXPECT_EQ(after->config.max_context, before->config.max_context);
    RopeFrequencies a = rope_frequencies(after->config), b = rope_frequencies(before->config);
    EXPECT_FLOAT_EQ(a.attention_factor, b.attention_factor);
    ASSERT_EQ(a.inverse.size(), b.inverse.size());
    for (size_t i = 0; i < a.inverse.size(); ++i) EXPECT_FLOAT_EQ(a.inverse[i], b.inverse[i]);
  }
}

TEST(QuantizeFile, CarriesMetadataOfAGgufAndIsStable) {
  Folder folder;
  folder.put("config.json", test::tiny_config("llama", ""));
  folder.put("model.safetensors", test::safetensors(test::tiny_tensors(false, false)));
  ASSERT_TRUE(quantize_file(folder.path(), folder / "a.gguf", TensorType::kQ4_1, 1).ok());
  auto again = quantize_file(folder / "a.gguf", folder / "b.gguf", TensorType::kQ4_1, 1);
  ASSERT_TRUE(again.ok()) << again.status().message();
  for (const QuantizedTensor& t : again->tensors) EXPECT_EQ(t.relative_error, 0) << t.name;
  auto read = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(read(folder / "a.gguf"), read(folder / "b.gguf"));
  auto file = GgufFile::open(folder / "b.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->find<std::string_view>("general.name"), "a");  // carried over
  EXPECT_EQ(file->data_start() % 32, 0u);
  EXPECT_EQ(file->find<uint32_t>("general.file_type"), 3u);
}

TEST(QuantizeFile, ADraftWithAReducedVocabularyKeepsItsMap) {
  Folder folder;
  folder.put("config.json", test::tiny_config("llama", ", \"rope_theta\": 10000.0"));
  auto tensors = test::tiny_tensors(false, true);
  tensors.erase("model.embed_tokens.weight");
  tensors["lm_head.weight"] = {"F32", {3, 64}, test::floats(test::random_floats(192, 9))};
  tensors["d2t"] = {"I32", {3}, test::raw(7) + test::raw(0) + test::raw(39)};
  folder.put("model.safetensors", test::safetensors(tensors));
  auto report = quantize_file(folder.path(), folder / "draft.gguf", TensorType::kQ4_1, 2);
  ASSERT_TRUE(report.ok()) << report.status().message();
  auto draft = load_model(folder / "draft.gguf", Role::kDraft);
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  EXPECT_TRUE(draft->shares_embedding);
  EXPECT_EQ(draft->head_tokens, (std::vector<int32_t>{0, 7, 39}));  // rows are put in order
  EXPECT_EQ(draft->config.vocabulary_size, 3);
  EXPECT_EQ(draft->config.n_tokens, 40);
  EXPECT_EQ(draft->head.type, TensorType::kQ4_1);
  EXPECT_FALSE(check_stands_alone(*draft).ok());
}

TEST(QuantizeFile, FailureLeavesTheOldFile) {
  Folder folder;
  folder.put("config.json", test::tiny_config("llama", ""));
  auto tensors = test::tiny_tensors(false, false);
  std::string& data = tensors["model.layers.1.mlp.up_proj.weight"].data;
  data.replace(400, 4, test::raw(NAN));
  folder.put("model.safetensors", test::safetensors(tensors));
  folder.put("out.gguf", "old");
  auto report = quantize_file(folder.path(), folder / "out.gguf", TensorType::kQ4_0, 2);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("model.layers.1.mlp.up_proj.weight"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(folder / "out.gguf"), 3u);
  size_t n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(folder.path())) ++n;
  EXPECT_EQ(n, 3u);  // no temporary file is left
  auto nowhere = quantize_file(folder.path(), folder / "no/such/out.gguf", TensorType::kQ4_0, 1);
  EXPECT_FALSE(nowhere.ok());
}

// The source lost its weights: the result was renamed over it.
TEST(QuantizeFile, TheSourceIsNotReplacedByAnyName) {
  namespace fs = std::filesystem;
  Folder folder, links;
  folder.put("config.json", test::tiny_config("llama", ""));
  folder.put("model.safetensors", test::safetensors(test::tiny_tensors(false, false)));
  const std::string fine = links / "fine.gguf";
  ASSERT_TRUE(quantize_file(folder.path(), fine, TensorType::kQ8_0, 1).ok());
  fs::create_symlink(fine, links / "soft.gguf");
  fs::create_hard_link(fine, links / "hard.gguf");
  fs::create_symlink(links / "nowhere", links / "dangling.gguf");
  const std::string weights = folder / "model.safetensors";
  for (const auto& [in, out, says] :
       {std::tuple{fine, fine, "is a file of the source"},
        std::tuple{fine, links / "./fine.gguf", "is a file of the source"},
        std::tuple{fine, links / "soft.gguf", "is a file of the source"},
        std::tuple{links / "soft.gguf", fine, "is a file of the source"},
        std::tuple{fine, links / "hard.gguf", "is a file of the source"},
        std::tuple{folder.path(), weights, "is a file of the source"},
        std::tuple{folder.path(), folder / "config.json", "is a file of the source"},
        std::tuple{folder.path(), links / "soft.gguf", "is a symbolic link to"},
        std::tuple{folder.path(), links / "dangling.gguf", "is a symbolic link to"},
        std::tuple{folder.path(), links.path(), "is a folder"},
        std::tuple{folder.path(), std::string("/dev/null"), "is no regular file"},
        std::tuple{folder.path(), links / "no/x.gguf", "No such file"}}) {
    auto report = quantize_file(in, out, TensorType::kQ4_0, 1);
    ASSERT_FALSE(report.ok()) << in << " " << out;
    EXPECT_NE(report.status().message().find(says), std::string::npos) << report.status().message();
    EXPECT_NE(report.status().message().find(out), std::string::npos) << report.status().message();
  }
  EXPECT_EQ(load_model(fine)->layers[0].q.type, TensorType::kQ8_0);
  EXPECT_TRUE(fs::is_symlink(links / "soft.gguf"));
  // An earlier result in the model's own folder may be written again.
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(quantize_file(folder.path(), folder / "out.gguf", TensorType::kQ4_0, 1).ok());
}

TEST(QuantizeModel, OwnsItsWeightsAndFirstLayersBorrow) {
  Folder folder;
  folder.put("config.json", test::tiny_config("llama", ""));
  folder.put("model.safetensors", test::safetensors(test::tiny_tensors(false, false)));
  ThreadPool pool(2);
  Result<Model> quantized = invalid("not yet");
  {
    auto model = load_model(folder.path());
    ASSERT_TRUE(model.ok());
    EXPECT_FALSE(quantize_model(*model, TensorType::kQ6_K, pool).ok());
    EXPECT_FALSE(first_layers(*model, 0).ok());
    EXPECT_FALSE(first_layers(*model, 3).ok());
    auto first = first_layers(*model, 1);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(first->layers.size(), 1u);
    EXPECT_EQ(first->head.data.data(), model->head.data.data());
    quantized = quantize_model(*first, TensorType::kQ4_1, pool);
    ASSERT_TRUE(quantized.ok());
    expect_close(*quantized, *first, tolerance(TensorType::kQ4_1));
  }
  EXPECT_EQ(quantized->config.n_layers, 1);
  EXPECT_EQ(quantized->embedding.type, TensorType::kQ4_1);
  EXPECT_TRUE(check_finite(*quantized, pool).ok());  // after its source is gone
}

}  // namespace
}  // namespace pf
