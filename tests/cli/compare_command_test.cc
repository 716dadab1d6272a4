// Truth: a draft that is its target, under other names or through a window that holds the text,
// thinks the same at every position; and refusals written down by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "tests/model/files.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace pf {
namespace {

using test::Folder;
using test::StRow;
using testing::HasSubstr;

constexpr int32_t kBytes = 256;
const std::vector<std::string> kWords = {"th", "he", "in", "er"};  // tokens behind the bytes

// Token t of the target is token place(t, n) of a draft with n tokens.
int32_t place(int32_t t, int32_t n) { return (7 * t + 5) % n; }

// Bytes, then as many of the words as n has room for; `moved`: each in its place.
std::string tokenizer(int32_t n, bool moved) {
  nlohmann::json j = {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                      {"decoder", {{"type", "ByteLevel"}}},
                      {"model", {{"type", "BPE"}, {"merges", nlohmann::json::array()}}}};
  for (int32_t t = 0; t < n; ++t) {
    std::string text;
    if (t < kBytes) append_utf8(letter_of_byte(static_cast<uint8_t>(t)), &text);
    if (t >= kBytes) {
      text = kWords[static_cast<size_t>(t - kBytes)];
      j["model"]["merges"].push_back(text.substr(0, 1) + " " + text.substr(1));
    }
    j["model"]["vocab"][text] = moved ? place(t, n) : t;
  }
  return j.dump();
}

// The tiny decoder with n tokens; those of two such models with the same text have the same rows.
void write_model(const Folder& folder, int32_t n, bool moved) {
  auto tensors = test::tiny_tensors(false, false);
  for (auto [name, seed] :
       {std::pair{"model.embed_tokens.weight", 500u}, {"lm_head.weight", 900u}}) {
    std::vector<std::string> rows(static_cast<size_t>(n));
    for (int32_t t = 0; t < n; ++t)
      rows[static_cast<size_t>(moved ? place(t, n) : t)] =
          test::floats(test::random_floats(64, seed + static_cast<unsigned>(t)));
    std::string data;
    for (const std::string& row : rows) data += row;
    tensors[name] = {"F32", {n, 64}, data};
  }
  std::string config = test::tiny_config("llama", R"(, "rope_theta": 10000.0)");
  config.replace(config.find("\"vocab_size\": 40"), 16, "\"vocab_size\": " + std::to_string(n));
  folder.put("config.json", config);
  folder.put("model.safetensors", test::safetensors(tensors));
  folder.put("tokenizer.json", tokenizer(n, moved));
}

struct Ran {
  int code = 0;
  std::string said;  // on stderr
  nlohmann::json figures;
};

// Twelve tokens behind the prompt, with a draft of n tokens.
class CompareCommand : public testing::Test {
 protected:
  Ran run(int32_t n, bool moved, const std::string& prompt, const std::string& more = "") {
    write_model(target_, kBytes + 4, false);
    write_model(draft_, n, moved);
    CLI::App app;
    std::function<int()> what;
    declare_compare(&app, &what);
    app.parse(
        "compare --device cpu --dtype fp32 --draft-quantization none --threads 1 "
        "--kv-blocks 64 --max-num-seqs 2 --max-new-tokens 12 --positions 1 --model " +
        target_.path() + " --draft " + draft_.path() + " --json " + (target_ / "report") +
        " --prompt \"" + prompt + "\" " + more);
    Ran ran;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    ran.code = what();
    ran.said = testing::internal::GetCapturedStderr();
    std::string shown = testing::internal::GetCapturedStdout();
    if (ran.code == kUsage) return ran;
    EXPECT_THAT(shown, HasSubstr("position "));
    std::ifstream in(target_ / "report");
    ran.figures = nlohmann::json::parse(in);
    return ran;
  }
  Folder target_, draft_;
};

void expect_twin(const Ran& ran) {
  EXPECT_THAT(ran.said, testing::IsEmpty());
  EXPECT_EQ(ran.figures["positions"], 12);
  EXPECT_DOUBLE_EQ(ran.figures["jaccard"], 1);
  EXPECT_NEAR(ran.figures["one_minus_tv"], 1, 1e-5);
  EXPECT_EQ(ran.figures["one_minus_tv_per_position"].size(), 12u);
  nlohmann::json acceptance = ran.figures["acceptance_per_position"];
  ASSERT_EQ(acceptance.size(), 5u);
  for (const auto& kept : acceptance) EXPECT_DOUBLE_EQ(kept, 1);
}

const char* const kShort = "abcde abcde fgh 0123";  // no word in it

TEST_F(CompareCommand, TheModelItselfAgreesEverywhere) { expect_twin(run(260, false, kShort)); }

TEST_F(CompareCommand, ADraftsOwnVocabularyIsTranslated) {
  expect_twin(run(260, true, kShort));
  expect_twin(run(260, true, "the thin heron in the other tin"));
}

// "th" and the other words are spelled for it, and it never says one.
TEST_F(CompareCommand, WhatTheDraftCannotSayIsMissed) {
  Ran ran = run(256, true, "the thin heron in the other tin");
  EXPECT_EQ(ran.figures["positions"], 12);
  EXPECT_LT(ran.figures["one_minus_tv"], 0.999);
  EXPECT_GT(ran.figures["one_minus_tv"], 0.1);
}

// A window of 64 holds 48 tokens and the room for a draft; of a longer text it holds 32.
TEST_F(CompareCommand, AWindowThatHoldsTheTextIsTheText) {
  for (bool moved : {false, true}) {
    expect_twin(run(260, moved, kShort, "--max-prefix-len 64"));
    std::string text(100, 'x');
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 23);
    Ran ran = run(260, moved, text, "--max-prefix-len 64");
    EXPECT_EQ(ran.figures["positions"], 12) << ran.said;
    EXPECT_LT(ran.figures["one_minus_tv"], 0.9999);
    EXPECT_GT(ran.figures["one_minus_tv"], 0.1);
  }
}

TEST_F(CompareCommand, ADraftWithTooLittleRoomIsRefused) {
  for (bool moved : {false, true}) {
    Ran ran = run(260, moved, kShort, "--max-prefix-len 31");
    EXPECT_EQ(ran.code, kUsage);
    EXPECT_THAT(ran.said, HasSubstr("room for 32 tokens; model has room for 31: raise "
                                    "--max-prefix-len"));
    ran = run(260, moved, kShort, "--max-prefix-len 32");
    EXPECT_NE(ran.code, kUsage) << ran.said;
  }
}

TEST_F(CompareCommand, TextsBeyondTheContextAreRefused) {
  Ran ran = run(260, true, std::string(501, 'x'));
  EXPECT_EQ(ran.code, kUsage);
  EXPECT_THAT(ran.said, HasSubstr("beyond the context of 512 tokens"));
}

TEST_F(CompareCommand, AForeignDraftIsRefused) {
  write_model(target_, kBytes + 4, false);
  draft_.put("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]},
      "pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"}})");
  auto tensors = test::tiny_tensors(false, false);
  draft_.put("config.json", test::tiny_config("llama", R"(, "rope_theta": 10000.0)"));
  draft_.put("model.safetensors", test::safetensors(tensors));
  CLI::App app;
  std::function<int()> what;
  declare_compare(&app, &what);
  app.parse("compare --device cpu --prompt x --model " + target_.path() + " --draft " +
            draft_.path());
  testing::internal::CaptureStderr();
  EXPECT_EQ(what(), kUsage);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no vocabulary map"));
}

}  // namespace
}  // namespace pf
