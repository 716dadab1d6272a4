// Truth: the layout of published Medusa-1 heads, written down by hand, and what a reader may say of
// files that break it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/files.h"
#include "model/model.h"
#include "model/quantize.h"

namespace pf {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Rows = std::map<std::string, test::StRow>;

constexpr int64_t kE = 8, kV = 12;

Rows rows_of(int n_heads, int n_blocks, const std::string& prefix = "medusa_head.") {
  Rows rows;
  unsigned seed = 1;
  auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    size_t n = 1;
    for (int64_t d : shape) n *= static_cast<size_t>(d);
    rows[prefix + name] = {"F32", shape, test::floats(test::random_floats(n, seed++))};
  };
  for (int i = 0; i < n_heads; ++i) {
    const std::string head = std::to_string(i) + ".";
    for (int j = 0; j < n_blocks; ++j) {
      add(head + std::to_string(j) + ".linear.weight", {kE, kE});
      add(head + std::to_string(j) + ".linear.bias", {kE});
    }
    add(head + std::to_string(n_blocks) + ".weight", {kV, kE});
  }
  return rows;
}

Result<Model> load(const Rows& rows, const std::string& config = "") {
  test::Folder folder;
  if (!config.empty()) folder.put("config.json", config);
  folder.put("medusa_lm_head.safetensors", test::safetensors(rows));
  return load_model(folder.path(), Role::kDraft);
}
std::string refusal(const Rows& rows, const std::string& config = "") {
  auto heads = load(rows, config);
  EXPECT_FALSE(heads.ok());
  std::string message = heads.ok() ? "" : heads.status().message();
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

void expect_heads(const Result<Model>& m, size_t n_heads, size_t n_blocks) {
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->head_kind, HeadKind::kMedusa);
  EXPECT_EQ(m->hidden_width(), kE);
  EXPECT_EQ(m->config.vocabulary_size, kV);
  ASSERT_EQ(m->medusa.size(), n_heads);
  for (const MedusaHead& h : m->medusa) {
    ASSERT_EQ(h.blocks.size(), n_blocks);
    EXPECT_EQ(h.out.shape, (std::vector<int64_t>{kV, kE}));
  }
  EXPECT_EQ(all_tensors(*m).size(), n_heads * (2 * n_blocks + 1));
}

TEST(MedusaLayout, AsPublished) {
  expect_heads(load(rows_of(3, 1), R"({"medusa_num_heads": 3, "medusa_num_layers": 1})"), 3, 1);
  expect_heads(load(rows_of(2, 2), R"({"medusa_num_heads": 2, "medusa_num_layers": 2})"), 2, 2);
  // Five in the file where config.json knows of two, as the first ones were published.
  expect_heads(load(rows_of(5, 1), R"({"medusa_num_heads": 2, "medusa_num_layers": 1})"), 5, 1);
}

TEST(MedusaLayout, WithoutPrefixOrConfig) {
  expect_heads(load(rows_of(2, 1, "")), 2, 1);
  test::Folder folder;
  std::string file = folder.put("medusa_lm_head.safetensors", test::safetensors(rows_of(2, 1)));
  expect_heads(load_model(file, Role::kDraft), 2, 1);
}

TEST(MedusaLayout, UnderAModelsFileName) {
  test::Folder folder;
  folder.put("config.json", R"({"medusa_num_heads": 2, "base_model_name_or_path": "x"})");
  std::string file = folder.put("model.safetensors", test::safetensors(rows_of(2, 1)));
  expect_heads(load_model(folder.path(), Role::kDraft), 2, 1);
  expect_heads(load_model(file, Role::kDraft), 2, 1);
}

TEST(MedusaLayout, WhatIsMissingIsListed) {
  Rows rows = rows_of(3, 1);
  rows.erase("medusa_head.1.0.linear.bias");
  rows.erase("medusa_head.2.1.weight");
  EXPECT_THAT(refusal(rows), AllOf(HasSubstr("missing"), HasSubstr("1.0.linear.bias, 2.1.weight"),
                                   Not(HasSubstr("0.0"))));
  EXPECT_THAT(refusal(rows_of(1, 1), R"({"medusa_num_heads": 2})"),
              HasSubstr("1.0.linear.weight, 1.0.linear.bias, 1.1.weight"));
}

TEST(MedusaLayout, WhatBreaksItIsNamed) {
  Rows rows = rows_of(2, 1);
  rows["medusa_head.0.0.linear.weight"].shape = {4, 16};
  EXPECT_THAT(refusal(rows), HasSubstr("'0.0.linear.weight' has shape [4, 16]"));
  rows = rows_of(2, 1);
  rows["medusa_head.0.0.linear.bias"].data.replace(0, 4, test::raw<float>(NAN));
  EXPECT_THAT(refusal(rows), HasSubstr("'0.0.linear.bias' holds NaN"));
  rows = rows_of(2, 1);
  rows["stranger"] = rows["medusa_head.0.0.linear.bias"];
  EXPECT_THAT(refusal(rows), HasSubstr("'stranger' is no part of Medusa heads"));
  EXPECT_THAT(refusal({}, R"({"medusa_num_heads": 2})"), HasSubstr("1..16 heads"));
  EXPECT_THAT(refusal(rows_of(1, 1), R"({"medusa_num_heads": 1000000000})"),
              HasSubstr("1..16 heads"));
  EXPECT_THAT(refusal(rows_of(1, 1), R"({"medusa_num_heads": "x"})"),
              HasSubstr("medusa_num_heads"));
  rows = rows_of(1, 1);
  rows["99999999999999999999.0.linear.weight"] = rows["medusa_head.0.0.linear.weight"];
  EXPECT_THAT(refusal(rows), HasSubstr("is no part of Medusa heads"));
}

TEST(MedusaLayout, GoesWithATargetOfItsWidthAndTokens) {
  auto heads = load(rows_of(2, 1));
  ASSERT_TRUE(heads.ok());
  Model target;
  target.config.width = kE;
  target.config.vocabulary_size = kV;
  EXPECT_TRUE(check_fits(*heads, target).ok()) << check_fits(*heads, target).message();
  EXPECT_TRUE(tap_layers_of(*heads, target)->empty());
  target.config.width = 16;
  target.config.vocabulary_size = 13;
  EXPECT_THAT(check_fits(*heads, target).message(),
              AllOf(HasSubstr("hidden states of width 16, its own width is 8"),
                    HasSubstr("12 tokens, the target has 13")));
  EXPECT_THAT(check_stands_alone(*heads).message(), HasSubstr("--draft"));
}

TEST(MedusaLayout, IsNotWrittenAsGguf) {
  test::Folder folder;
  folder.put("medusa_lm_head.safetensors", test::safetensors(rows_of(2, 1)));
  auto report = quantize_file(folder.path(), folder / "out.gguf", TensorType::kQ8_0, 1);
  EXPECT_THAT(report.status().message(), HasSubstr("Medusa heads"));
}

}  // namespace
}  // namespace pf
