// Truth: level 0, vocabularies and files written by hand, good ones and hostile ones.
#include "text/vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "text/smollm2.h"
#include "text/tokenizer.h"

namespace pf {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

std::string refusal(const std::function<void(Vocabulary*)>& spoil) {
  Vocabulary v;
  v.pre = "gpt-2";
  v.tokens = {"a", "b", "ab", "</s>"};
  v.types = {TokenType::kNormal, TokenType::kNormal, TokenType::kNormal, TokenType::kControl};
  v.merges = {{"a", "b"}};
  spoil(&v);
  return check_vocabulary(&v).message();
}

TEST(CheckVocabulary, AGoodOnePasses) {
  EXPECT_EQ(refusal([](Vocabulary*) {}), "");
  EXPECT_EQ(refusal([](Vocabulary* v) { v->types.clear(); }), "");
}

TEST(CheckVocabulary, HostileOnesAreRefusedByName) {
  const auto has = [](const std::string& message, const std::string& part) {
    return message.find(part) != std::string::npos && message.find('\n') == std::string::npos;
  };
  EXPECT_TRUE(
      has(refusal([](Vocabulary* v) { v->tokens.clear(), v->types.clear(); }), "no tokens"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->types.pop_back(); }), "4 tokens but 3 types"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->types[1] = TokenType(9); }), "type 9"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->scores = {1}; }), "1 scores"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->scores = {0, NAN, 0, 0}; }), "score of token 1"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->tokens[1] = v->tokens[0]; }),
                  "tokens 0 and 1 are both 'a'"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->tokens[3].clear(); }), "token 3 is empty"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) {
                    v->merges = {{"x\n", "b"}};
                  }),
                  "merge 0 ('x' + 'b')"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->merges = {{"a", "x"}}; }), "right part"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->merges = {{"b", "a"}}; }), "result"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->merges.emplace_back("a", "b"); }), "twice"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->merges = {{"", "a"}}; }), "for ever"));
  EXPECT_TRUE(
      has(refusal([](Vocabulary* v) { v->tokens[3].assign(257, 'x'); }), "longer than 256"));
  for (int32_t id : {-1, 4, INT32_MAX})
    EXPECT_TRUE(has(refusal([&](Vocabulary* v) { v->eos = id; }), "eos token is"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->add_bos = true; }), "add_bos"));
  EXPECT_TRUE(has(refusal([](Vocabulary* v) { v->strip_right = {7}; }), "token 7"));
}

TEST(CheckVocabulary, PaddingMayRepeat) {
  EXPECT_EQ(refusal([](Vocabulary* v) {
              for (int i = 0; i < 3; ++i)
                v->tokens.push_back("a"), v->types.push_back(TokenType::kUnused);
            }),
            "");
}

// ---- tokenizer.json

json small_json() {
  return json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<end>", "special": true, "rstrip": true},
                     {"id": 5, "content": "[tool]", "special": false}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]},
    "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<end>"}}, {"Sequence": {"id": "A"}}]}]},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "1": 3}, "merges": ["a b"]}})");
}

TEST(TokenizerJson, ByteLevel) {
  auto v = read_tokenizer_json(small_json().dump(),
                               R"({"eos_token": {"content": "<end>"}, "chat_template": "T"})");
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(v->eos, 4);
  EXPECT_EQ(v->bos, 4);
  EXPECT_TRUE(v->add_bos);
  EXPECT_EQ(v->chat_template, "T");
  EXPECT_EQ(v->pre_patterns.size(), 2u);
  const auto t = Tokenizer::create(v.take());
  ASSERT_TRUE(t.ok()) << t.status().message();
  EXPECT_EQ(t->encode("ab11[tool]"), (Ids{4, 2, 3, 3, 5}));
  EXPECT_EQ(t->encode("a<end>  b", {.add_special = false, .parse_special = true}), (Ids{0, 4, 1}));
}

TEST(TokenizerJson, MergesAsPairs) {
  json j = small_json();
  j["model"]["merges"] = json::parse(R"([["a", "b"]])");
  EXPECT_TRUE(read_tokenizer_json(j.dump()).ok());
}

TEST(TokenizerJson, RealVocabularyThroughJsonGivesTheGoldenIds) {
  const Vocabulary real = smollm2_vocabulary();
  json j = small_json();
  j["post_processor"] = nullptr;
  j["normalizer"] = nullptr;
  j["added_tokens"] = json::array();
  j["model"]["vocab"] = json::object();
  j["model"]["merges"] = json::array();
  for (size_t i = 0; i < real.tokens.size(); ++i) {
    j["model"]["vocab"][real.tokens[i]] = i;
    if (real.types[i] == TokenType::kControl)
      j["added_tokens"].push_back({{"id", i}, {"content", real.tokens[i]}, {"special", true}});
  }
  for (const auto& [l, r] : real.merges) j["model"]["merges"].push_back(l + " " + r);
  auto v = read_tokenizer_json(j.dump());
  ASSERT_TRUE(v.ok()) << v.status().message();
  const Tokenizer t = Tokenizer::create(v.take()).take();
  for (const json& c : goldens()["cases"])
    EXPECT_EQ(t.encode(c["text"].get<std::string>(), {.parse_special = true}), c["ids"].get<Ids>());
}

TEST(TokenizerJson, SentencePieceStyle) {
  const auto v = read_tokenizer_json(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "model": {"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
      "vocab": {"<unk>": 0, "<0x0A>": 1, "▁": 2, "a": 3, "b": 4, "▁a": 5},
      "merges": ["▁ a"]}})");
  ASSERT_TRUE(v.ok()) << v.status().message();
  const Tokenizer t = Tokenizer::create(*v).take();
  EXPECT_EQ(t.encode("a b\n€"), (Ids{5, 2, 4, 1, 0}));
  EXPECT_EQ(t.decode(Ids{5, 2, 4, 1}, true), "a b\n");
}

TEST(TokenizerJson, HostileOnesAreRefused) {
  const auto message = [](const std::function<void(json*)>& spoil) {
    json j = small_json();
    spoil(&j);
    const auto v = read_tokenizer_json(j.dump());
    return v.ok() ? std::string() : v.status().message();
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["vocab"]["z"] = 9; }), "id 9 leaves ids"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["vocab"]["z"] = 3; }), "id 3 is both"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["vocab"]["z"] = -1; }), "no valid id"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["vocab"]["z"] = 1e18; }), "no valid id"));
  EXPECT_TRUE(
      has(message([](json* j) { (*j)["model"]["vocab"]["z"] = UINT64_MAX; }), "no valid id"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["vocab"] = 3; }), "model.vocab"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["merges"] = {"ab"}; }), "merge 0"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["merges"] = {"a z"}; }), "'a' + 'z'"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["merges"] = 7; }), "model.merges"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["model"]["type"] = "Unigram"; }), "Unigram"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["normalizer"]["type"] = "Lowercase"; }), "Lowercase"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["pre_tokenizer"] = nullptr; }), "neither"));
  EXPECT_TRUE(has(message([](json* j) { (*j)["added_tokens"][0] = 3; }), "added_tokens"));
  EXPECT_TRUE(has(message([](json* j) {
                    (*j)["model"]["vocab"]["z"] = 7;
                    (*j)["added_tokens"].push_back({{"id", 4}, {"content", "<end>"}});
                  }),
                  "no token has the id 6"));
  EXPECT_FALSE(read_tokenizer_json("").ok());
  EXPECT_FALSE(read_tokenizer_json("[1]").ok());
  EXPECT_FALSE(read_tokenizer_json(small_json().dump().substr(0, 300)).ok());
  EXPECT_FALSE(read_tokenizer_json(small_json().dump(), "{").ok());
  EXPECT_FALSE(read_tokenizer_json(std::string(100000, '[')).ok());
  EXPECT_FALSE(read_tokenizer_json("{\"a\":" + std::string(100000, '[')).ok());
}

TEST(TokenizerJson, ChangedBytesNeverCrash) {
  std::mt19937 random(3);
  const std::string good = small_json().dump();
  int n_refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (int n = 1 + random() % 3; n > 0; --n)
      text[random() % text.size()] = static_cast<char>(random());
    auto v = read_tokenizer_json(text, text);
    n_refused += !v.ok();
    if (!v.ok()) continue;
    if (auto t = Tokenizer::create(v.take()); t.ok()) t->encode("ab 11<end>\xFF");
  }
  EXPECT_GT(n_refused, 1000);
}

// ---- tokenizer.model

std::string varint(uint64_t n) {
  std::string out;
  for (; n >= 0x80; n >>= 7) out += static_cast<char>(0x80 | (n & 0x7F));
  return out + static_cast<char>(n);
}
std::string number_field(int field, uint64_t n) { return varint(field << 3) + varint(n); }
std::string bytes_field(int field, const std::string& b) {
  return varint(field << 3 | 2) + varint(b.size()) + b;
}
std::string piece(const std::string& text, float score, int type) {
  char bits[4];
  std::memcpy(bits, &score, 4);
  return bytes_field(
      1, bytes_field(1, text) + varint(2 << 3 | 5) + std::string(bits, 4) + number_field(3, type));
}
std::string small_model(uint64_t model_type = 2, const std::string& normalizer = "identity") {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("<0x0A>", 0, 6) +
         piece("\u2581", -3, 1) + piece("a", -4, 1) + piece("\u2581a", -1, 1) +
         bytes_field(2, number_field(3, model_type)) +
         bytes_field(3, bytes_field(1, normalizer) +
                            bytes_field(2, normalizer == "identity" ? "" : "map") +
                            number_field(4, 0));
}
Result<Vocabulary> read(const std::string& bytes) {
  return read_sentencepiece(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

TEST(SentencePieceModel, ReadsAndEncodes) {
  auto v = read(small_model());
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(v->bos, 1);
  EXPECT_EQ(v->eos, 2);
  EXPECT_EQ(v->pad, std::nullopt);
  EXPECT_TRUE(v->add_space_prefix);
  EXPECT_FALSE(v->remove_extra_spaces);
  const Tokenizer t = Tokenizer::create(v.take()).take();
  EXPECT_EQ(t.encode("a a\n"), (Ids{1, 6, 6, 3}));
}

TEST(SentencePieceModel, OthersAreRefused) {
  EXPECT_EQ(read(small_model(1)).status().code(), Code::kUnimplemented);
  EXPECT_EQ(read(small_model(2, "nmt_nfkc_cf")).status().code(), Code::kUnimplemented);
  EXPECT_FALSE(read("").ok());
  EXPECT_FALSE(read("GGUF").ok());
  EXPECT_FALSE(read(small_model() + piece("a", 0, 1)).ok());
  EXPECT_FALSE(read(small_model() + piece("x", 0, 77)).ok());
  EXPECT_FALSE(read(varint(1 << 3 | 2) + varint(UINT64_MAX)).ok());
}

TEST(SentencePieceModel, CutAndChangedBytesNeverCrash) {
  std::mt19937 random(4);
  const std::string good = small_model();
  for (size_t n = 0; n < good.size(); ++n) (void)read(good.substr(0, n)).ok();
  int n_refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = good;
    for (int n = 1 + random() % 3; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    auto v = read(bytes);
    n_refused += !v.ok();
    if (!v.ok()) continue;
    if (auto t = Tokenizer::create(v.take()); t.ok()) t->decode(t->encode("a  a\xFF"), true);
  }
  EXPECT_GT(n_refused, 500);
}

}  // namespace
}  // namespace pf
