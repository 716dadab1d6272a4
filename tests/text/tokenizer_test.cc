// Truth: level 0, vocabularies small enough to merge by hand; work counts for hostile texts.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/smollm2.h"
#include "text/utf8.h"

namespace pf {
namespace {

using Ids = std::vector<int32_t>;

// SentencePiece: 0 <unk>, 1 <s>, 2 </s>, 3..6 bytes 0A C3 A9 FF, then pieces with scores.
Vocabulary small_sentencepiece() {
  Vocabulary v;
  v.kind = VocabularyKind::kSentencePieceBpe;
  const auto add = [&](const char* text, float score, TokenType type = TokenType::kNormal) {
    v.tokens.push_back(text);
    v.scores.push_back(score);
    v.types.push_back(type);
  };
  add("<unk>", 0, TokenType::kUnknown);
  add("<s>", 0, TokenType::kControl);
  add("</s>", 0, TokenType::kControl);
  for (const char* byte : {"<0x0A>", "<0xC3>", "<0xA9>", "<0xFF>"}) add(byte, 0, TokenType::kByte);
  add("\u2581", -10);                         // 7
  add("a", -11);                              // 8
  add("b", -12);                              // 9
  add("c", -13);                              // 10
  add("ab", -2);                              // 11
  add("bc", -1);                              // 12
  add("\u2581a", -3);                         // 13
  add("abc", -4);                             // 14
  add("\u2581ab", -5);                        // 15
  add("[tool]", 0, TokenType::kUserDefined);  // 16
  v.unk = 0;
  v.bos = 1;
  v.eos = 2;
  v.add_bos = v.add_space_prefix = true;
  return v;
}

Tokenizer small() { return Tokenizer::create(small_sentencepiece()).take(); }

TEST(SentencePiece, MergesByScore) {
  // "▁abc": bc (-1) goes before ab (-2); then ▁a (-3) before a+bc, which no longer has its a.
  EXPECT_EQ(small().encode("abc"), (Ids{1, 13, 12}));
  // "▁ab": ab (-2) first, then ▁ + ab = ▁ab (-5).
  EXPECT_EQ(small().encode("ab"), (Ids{1, 15}));
  // "▁c a": nothing joins ▁ + c; ▁a does.
  EXPECT_EQ(small().encode("c a"), (Ids{1, 7, 10, 13}));
}

TEST(SentencePiece, EqualScoresMergeFromTheLeft) {
  Vocabulary v = small_sentencepiece();
  v.add_space_prefix = v.add_bos = false;
  v.scores[11] = v.scores[12];                                // ab and bc
  EXPECT_EQ(Tokenizer::create(v)->encode("abc"), (Ids{14}));  // ab, then abc
}

TEST(SentencePiece, BytesWhereNoPieceIs) {
  EXPECT_EQ(small().encode("\n"), (Ids{1, 7, 3}));
  EXPECT_EQ(small().encode("é"), (Ids{1, 7, 4, 5}));
  // No token for the bytes of the euro sign: one <unk> for the whole run.
  EXPECT_EQ(small().encode("€€a"), (Ids{1, 7, 0, 8}));
}

TEST(SentencePiece, PrefixAndSpecialTokens) {
  EXPECT_EQ(small().encode(""), (Ids{1}));
  EXPECT_EQ(small().encode("a", {.add_special = false}), (Ids{13}));
  EXPECT_EQ(small().encode("</s>a", {.add_special = false, .parse_special = true}), (Ids{2, 13}));
  Vocabulary v = small_sentencepiece();
  v.prefix_after_special = false;
  const Tokenizer once = Tokenizer::create(v).take();
  EXPECT_EQ(once.encode("a</s>a", {.parse_special = true}), (Ids{1, 13, 2, 8}));
  // User-defined tokens are taken whole on every path; text goes on after them without a prefix.
  EXPECT_EQ(small().encode("a[tool]a"), (Ids{1, 13, 16, 8}));
}

TEST(SentencePiece, DecodeTakesThePrefixOff) {
  const Tokenizer t = small();
  EXPECT_EQ(t.decode(t.encode("ab é\n"), true), "ab é\n");
  EXPECT_EQ(t.decode(t.encode(" a"), true), " a");
  EXPECT_EQ(t.decode(Ids{13, 13}, true), "a a");
  EXPECT_EQ(t.decode(Ids{6}, true), "\uFFFD");
}

TEST(SentencePiece, UnusedPiecesFallApartAgain) {
  Vocabulary v = small_sentencepiece();
  v.add_space_prefix = v.add_bos = false;
  v.types[12] = TokenType::kUnused;  // bc merges first, then a + bc = abc is used
  EXPECT_EQ(Tokenizer::create(v)->encode("abc"), (Ids{14}));
  EXPECT_EQ(Tokenizer::create(v)->encode("bc"), (Ids{9, 10}));
}

TEST(SentencePiece, RemovesExtraSpaces) {
  Vocabulary v = small_sentencepiece();
  v.remove_extra_spaces = true;
  const Tokenizer t = Tokenizer::create(v).take();
  EXPECT_EQ(t.encode("  a   a "), t.encode("a a"));
}

Vocabulary small_byte_level() {
  Vocabulary v;
  v.pre = "gpt-2";
  v.tokens = {"a", "b", "c", "ab", "bc", "abc", "Ġ", "Ġa", "<end>"};
  v.types.assign(9, TokenType::kNormal);
  v.types[8] = TokenType::kControl;
  v.merges = {{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"Ġ", "a"}};
  v.eos = 8;
  return v;
}

TEST(ByteLevel, MergesByRank) {
  const Tokenizer t = Tokenizer::create(small_byte_level()).take();
  EXPECT_EQ(t.encode("abc"), (Ids{5}));           // bc, then a + bc
  EXPECT_EQ(t.encode("ab abc"), (Ids{3, 6, 5}));  // " abc": bc (0), then a + bc (2) before Ġa (3)
}

TEST(ByteLevel, ByteWithoutTokenIsDropped) {
  const Tokenizer t = Tokenizer::create(small_byte_level()).take();
  EXPECT_EQ(t.encode("azb"), (Ids{3}));  // as in Hugging Face: its neighbours meet and merge
}

TEST(ByteLevel, SpecialTextOnlyOnRequest) {
  const Tokenizer t = Tokenizer::create(small_byte_level()).take();
  EXPECT_EQ(t.encode("a<end>b", {.parse_special = true}), (Ids{0, 8, 1}));
  EXPECT_EQ(t.encode("a<end>b"), (Ids{0, 1}));
  EXPECT_EQ(t.find("Ġa"), 7);
  EXPECT_EQ(t.find("nothing"), std::nullopt);
  EXPECT_EQ(t.find_marker("<end>"), 8);
  EXPECT_EQ(t.find_marker("a"), std::nullopt);
}

TEST(ByteLevel, IdsOutsideAreNothing) {
  for (int32_t id : {-1, 9, 1 << 30, INT32_MIN}) {
    const Tokenizer t = Tokenizer::create(small_byte_level()).take();
    EXPECT_EQ(t.bytes(id), "");
    EXPECT_FALSE(t.is_special(id));
    EXPECT_EQ(t.decode(Ids{0, id, 1}, false), "ab");
  }
}

TEST(ByteLevel, MovingKeepsItWorking) {
  Vocabulary v = small_byte_level();
  v.ignore_merges = true;
  Tokenizer a = Tokenizer::create(v).take();
  const Tokenizer b = std::move(a);
  EXPECT_EQ(b.encode("abc"), (Ids{5}));
  EXPECT_EQ(b.find("abc"), 5);
}

// Twice the text, twice the work: merge-queue entries and regex calls per byte stay bounded.
void expect_linear(const std::string& unit, size_t n_units) {
  EncodeWork half, whole;
  std::string text;
  for (size_t i = 0; i < n_units / 2; ++i) text += unit;
  smollm2().encode(text, {.work = &half});
  smollm2().encode(text + text, {.work = &whole});
  const auto n = static_cast<int64_t>(2 * text.size());
  EXPECT_LE(whole.merge_pops, 3 * n);  // a pair each at the start, two more for each merge
  EXPECT_LE(whole.merge_pops, 2 * half.merge_pops + 1000);
  EXPECT_LE(whole.regex_calls, 2 * n + 16);
  EXPECT_EQ(whole.regex_limits, 0);
}

TEST(HostileText, OneMebibyteOfOneLetter) { expect_linear("a", 1 << 20); }
TEST(HostileText, OneMebibyteOfSpaces) { expect_linear(" ", 1 << 20); }
TEST(HostileText, OneMebibyteOfDigits) { expect_linear("7", 1 << 20); }
TEST(HostileText, ManyCjkCharacters) { expect_linear("你", 26000); }
TEST(HostileText, ManyCombiningMarks) { expect_linear("\u0301", 512 << 10); }
TEST(HostileText, ManyAlmostSpecialTokens) { expect_linear("<|im_start|", 1 << 16); }

TEST(HostileText, CombiningMarksInEveryOrderAreNormalisedInParts) {
  Vocabulary v = smollm2_vocabulary();
  v.unicode_form = UnicodeForm::kNfc;
  const Tokenizer t = Tokenizer::create(std::move(v)).take();
  EXPECT_EQ(t.encode("e\u0301"), smollm2().encode("é"));
  std::string marks = "a";
  for (int i = 0; i < (256 << 10); ++i) marks += "\u0301\u0323";  // classes 230 and 220
  EncodeWork work;
  EXPECT_FALSE(t.encode(marks, {.work = &work}).empty());
  EXPECT_LE(work.merge_pops, static_cast<int64_t>(2 * marks.size()));
}

TEST(HostileText, ExponentialPatternIsCutSafely) {
  Vocabulary v = smollm2_vocabulary();
  v.pre_patterns = {R"((?:a+)+$|(?:a|aa)+b|\s+)"};
  const Tokenizer t = Tokenizer::create(std::move(v)).take();
  const std::string text = std::string(5000, 'a') + "c d " + std::string(5000, 'a') + "!";
  EncodeWork work;
  EXPECT_EQ(t.decode(t.encode(text, {.work = &work}), false), text);
  EXPECT_GE(work.regex_limits, 1);
}

TEST(RoundTrip, RandomBytesComeBackAsTheirValidText) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes(random() % 60, '\0');
    for (char& b : bytes) b = static_cast<char>(random() % 4 ? random() % 128 : random() % 256);
    // These bytes have no token in this vocabulary.
    std::erase_if(bytes, [](char c) {
      return std::string_view("\x04\x06\x13\x14\x16\x1d").find(c) != std::string_view::npos;
    });
    const std::string valid = to_valid_utf8(bytes);
    ASSERT_TRUE(is_valid_utf8(valid));
    const bool lossy = std::any_of(valid.begin(), valid.end(), [](char c) {
      return goldens()["byte_to_id"][static_cast<uint8_t>(c)].is_null();
    });
    if (lossy) continue;
    EXPECT_EQ(smollm2().decode(smollm2().encode(bytes), false), valid);
  }
}

TEST(RoundTrip, RandomCodePoints) {
  std::mt19937 random(12);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = random() % 20; i > 0; --i) {
      char32_t c = random() % (random() % 2 ? 0x3000 : 0x10000);
      if ((c >= 0xD800 && c < 0xE000) || c < 0x20) c = ' ';
      append_utf8(c, &text);
    }
    EXPECT_EQ(smollm2().decode(smollm2().encode(text), false), text);
  }
}

}  // namespace
}  // namespace pf
