// Truth: the layouts of published EAGLE heads, written down in tests/backend/published_head.h, and
// what a reader may say of files that break them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/published_head.h"
#include "model/quantize.h"

namespace pf {
namespace {

using P = PublishedHead;
using testing::HasSubstr;

std::vector<int32_t> known_tokens() {
  std::vector<int32_t> tokens;
  for (int64_t row = 0; row < P::kDraft; ++row)
    tokens.push_back(static_cast<int32_t>(P::token_of_row(row)));
  return tokens;
}

std::string refusal(const P::Rows& rows, const std::string& more = "") {
  test::Folder folder;
  auto head = P::load(folder, rows, more);
  EXPECT_FALSE(head.ok());
  std::string message = head.ok() ? "" : head.status().message();
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(PublishedLayout, Eagle3UnderEitherName) {
  for (const char* layer : {"midlayer.", "layers.0."}) {
    test::Folder folder;
    auto head = P::load(folder, P::tensors(true, layer));
    ASSERT_TRUE(head.ok()) << head.status().message();
    EXPECT_EQ(head->head_kind, HeadKind::kEagle3);
    EXPECT_EQ(head->head_tokens, known_tokens());
    EXPECT_EQ(head->hidden_width(), P::kTaps * P::E);
    EXPECT_EQ(head->layers[0].q.shape, (std::vector<int64_t>{P::H * P::D, 2 * P::E}));
    EXPECT_TRUE(head->layers[0].attention_norm.empty());
    EXPECT_EQ(head->embedding_norm.name, "enorm.weight");
    EXPECT_TRUE(head->shares_embedding);
    EXPECT_FALSE(head->shares_head);
    EXPECT_THAT(check_stands_alone(*head).message(), HasSubstr("--draft"));
  }
}

TEST(PublishedLayout, Eagle1UsesItsTargetsHead) {
  test::Folder folder;
  auto head = P::load(folder, P::tensors(false, "layers.0."));
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_EQ(head->head_kind, HeadKind::kEagle);
  EXPECT_EQ(head->hidden_width(), P::E);
  EXPECT_TRUE(head->shares_embedding && head->shares_head);
  EXPECT_TRUE(head->layers[0].attention_norm.empty() && head->final_norm.empty());
  EXPECT_TRUE(head->embedding_norm.empty() && head->hidden_norm.empty());
  EXPECT_EQ(head->fc_bias.shape, (std::vector<int64_t>{P::E}));
}

TEST(PublishedLayout, BothSurviveQuantising) {
  for (bool eagle3 : {false, true}) {
    test::Folder folder;
    auto head = P::load(folder, P::tensors(eagle3, "layers.0."),
                        R"(, "eagle_aux_hidden_state_layer_ids": [2, 5, 7])");
    ASSERT_TRUE(head.ok()) << head.status().message();
    auto report = quantize_file(folder.path(), folder / "head.gguf", TensorType::kQ8_0, 1);
    ASSERT_TRUE(report.ok()) << report.status().message();
    auto again = load_model(folder / "head.gguf", Role::kDraft);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(again->head_kind, head->head_kind);
    EXPECT_EQ(again->head_tokens, head->head_tokens);
    EXPECT_EQ(again->config.tap_layers, (std::vector<int32_t>{2, 5, 7}));
    EXPECT_EQ(again->shares_head, head->shares_head);
    EXPECT_EQ(again->fc.shape, head->fc.shape);
    EXPECT_EQ(again->fc_bias.empty(), eagle3);
    std::vector<float> a(static_cast<size_t>(head->layers[0].q.cols())), b(a.size());
    dequantize_rows(head->layers[0].q, 5, 1, a.data());
    dequantize_rows(again->layers[0].q, 5, 1, b.data());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0.25 / 254 + 1e-4);
  }
}

TEST(PublishedLayout, WhereItsStatesStand) {
  test::Folder folder;
  const P::Rows rows = P::tensors(true, "midlayer.");
  auto taps = [&](const std::string& more) {
    return P::load(folder, rows, more)->config.tap_layers;
  };
  EXPECT_TRUE(taps("").empty());
  EXPECT_EQ(taps(R"(, "eagle_aux_hidden_state_layer_ids": [2, 8, 13])"),
            (std::vector<int32_t>{2, 8, 13}));  // in front of these
  EXPECT_EQ(taps(R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 7, 12]})"),
            (std::vector<int32_t>{2, 8, 13}));  // behind these
  EXPECT_TRUE(taps(R"(, "eagle_config": {"use_aux_hidden_state": true})").empty());
  for (const char* bad : {"3", "[1.5]", "[-1, 2, 3]", "[\"a\"]"})
    EXPECT_THAT(refusal(rows, std::string(", \"eagle_aux_hidden_state_layer_ids\": ") + bad),
                HasSubstr("must be a list of layers"));
}

TEST(PublishedLayout, TapsOfATarget) {
  test::Folder folder;
  auto head = P::load(folder, P::tensors(true, "midlayer."));
  ASSERT_TRUE(head.ok());
  Model target;
  target.config.width = P::E;
  target.config.n_layers = 16;
  EXPECT_EQ(*tap_layers_of(*head, target), (std::vector<int32_t>{2, 8, 13}));
  target.config.n_layers = 4;
  EXPECT_THAT(tap_layers_of(*head, target).status().message(),
              HasSubstr("hidden states of 3 layers, its file names 0"));
  head->config.tap_layers = {0, 2, 5};
  EXPECT_THAT(tap_layers_of(*head, target).status().message(),
              HasSubstr("in front of layer 5, the target has 4 layers"));
  head->config.tap_layers = {0, 2, 4};
  EXPECT_EQ(*tap_layers_of(*head, target), (std::vector<int32_t>{0, 2, 4}));
  target.config.width = 40;
  EXPECT_THAT(check_fits(*head, target).message(),
              HasSubstr("hidden states of 96 values in all, no whole number of the target's 40"));
  auto eagle1 = P::load(folder, P::tensors(false, "layers.0."));
  ASSERT_TRUE(eagle1.ok());
  EXPECT_TRUE(tap_layers_of(*eagle1, target)->empty());
  EXPECT_THAT(check_fits(*eagle1, target).message(),
              HasSubstr("hidden states of width 40, its own width is 32"));
}

TEST(PublishedLayout, WhatBreaksItIsNamed) {
  const P::Rows good = P::tensors(true, "midlayer.");
  P::Rows rows = good;
  rows["d2t"].data.replace(8, 8, test::raw<int64_t>(-1));  // row 1 becomes token 0 once more
  EXPECT_THAT(refusal(rows), HasSubstr("'d2t' holds the token id 0 twice"));
  rows["d2t"].data.replace(8, 8, test::raw<int64_t>(39));
  EXPECT_THAT(refusal(rows), HasSubstr("'d2t' holds 40, which is no token id"));
  rows["d2t"].data.replace(8, 8, test::raw<int64_t>(INT64_MAX));
  EXPECT_THAT(refusal(rows), HasSubstr("which is no token id"));
  rows = good;
  rows["t2d"].data[2] = '\1';
  EXPECT_THAT(refusal(rows), HasSubstr("'t2d' must mark the tokens of 'd2t'"));
  rows = good;
  rows.erase("d2t");
  EXPECT_THAT(refusal(rows), HasSubstr("'t2d' is there without 'd2t'"));
  rows = good;
  rows.erase("midlayer.hidden_norm.weight");
  EXPECT_THAT(refusal(rows), HasSubstr("'enorm.weight' is missing"));
  rows = good;
  rows.erase("norm.weight");
  EXPECT_THAT(refusal(rows), HasSubstr("norm.weight' is missing"));
  rows = good;
  rows["midlayer.self_attn.k_proj.weight"].shape = {2 * P::E, P::G * P::D};
  EXPECT_THAT(refusal(rows), HasSubstr("k_proj.weight' has shape [64, 16]"));
  EXPECT_THAT(refusal(good, R"(, "norm_before_residual": true)"),
              HasSubstr("'norm_before_residual' is true"));
  rows = P::tensors(false, "layers.0.");
  P::add(&rows, "fc.weight", P::kFc, {P::E, 3 * P::E});
  EXPECT_THAT(refusal(rows), HasSubstr("'fc.weight' has shape [32, 96]; the configuration asks for "
                                       "[32, 64]"));
  rows = P::tensors(false, "layers.0.");
  P::add(&rows, "enorm.weight", P::kNorm, {P::E});
  EXPECT_THAT(refusal(rows), HasSubstr("'hnorm.weight' is missing"));
}

}  // namespace
}  // namespace pf
