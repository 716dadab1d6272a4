// Truth: level 0, small vocabularies whose partners are plain to see; and the real one.
#include "text/vocabulary_map.h"

#include <gtest/gtest.h>

#include "text/smollm2.h"

namespace pf {
namespace {

using Ids = std::vector<int32_t>;

Tokenizer of(std::vector<std::string> tokens, std::vector<size_t> special = {},
             std::vector<size_t> unused = {}) {
  Vocabulary v;
  v.pre = "gpt-2";
  v.types.assign(tokens.size(), TokenType::kNormal);
  for (size_t i : special) v.types[i] = TokenType::kControl;
  for (size_t i : unused) v.types[i] = TokenType::kUnused;
  v.tokens = std::move(tokens);
  return Tokenizer::create(std::move(v)).take();
}

TEST(VocabularyMap, SameVocabularyIsTheIdentity) {
  const VocabularyMap map = map_vocabularies(smollm2(), smollm2());
  EXPECT_TRUE(map.identity);
  EXPECT_EQ(map.n_shared, 49152);
  EXPECT_EQ(map.draft_coverage, 1.0);
  EXPECT_TRUE(map.first_differences.empty());
  EXPECT_TRUE(check_useful(map).ok());
}

TEST(VocabularyMap, PaddingKeepsTheIdentity) {
  const VocabularyMap map = map_vocabularies(of({"a", "b"}), of({"a", "b", "c", "[pad]"}, {}, {3}));
  EXPECT_TRUE(map.identity);
  EXPECT_EQ(map.to_target, (Ids{0, 1}));
  EXPECT_EQ(map.to_draft, (Ids{0, 1, -1, -1}));
  EXPECT_EQ(map.target_coverage, 0.5);
  EXPECT_TRUE(check_useful(map).ok());
}

TEST(VocabularyMap, BytesAndTypeDecide) {
  const Tokenizer draft = of({"b", "a", "<end>", "x"}, {2});
  const Tokenizer target = of({"a", "<end>", "b", "x"}, {3});
  const VocabularyMap map = map_vocabularies(draft, target);
  EXPECT_FALSE(map.identity);
  EXPECT_EQ(map.to_target, (Ids{2, 0, -1, -1}));  // <end> is special and x is text in one only
  EXPECT_EQ(map.to_draft, (Ids{1, -1, 0, -1}));
  EXPECT_EQ(map.first_differences, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(check_useful(map).code(), Code::kFailedPrecondition);  // 2 tokens are too few
}

// "abc" is spelled with the longest pieces; "z" has no piece; <x> is special and spelled as text.
TEST(VocabularyMap, WhatHasNoPartnerIsSpelled) {
  const Tokenizer draft = of({"a", "b", "c", "ab", "<", "x", ">"});
  const Tokenizer target = of({"abc", "a", "az", "<x>", "b"}, {3});
  const VocabularyMap map = map_vocabularies(draft, target);
  EXPECT_EQ(map.to_draft, (Ids{-1, 0, -1, -1, 1}));
  EXPECT_EQ(map.spelling_begin, (Ids{0, 2, 2, 2, 5, 5}));
  EXPECT_EQ(map.spelling, (Ids{3, 2, 4, 5, 6}));
  EXPECT_FALSE(map.covers_text);
  EXPECT_TRUE(map_vocabularies(draft, of({"a", "b", "<end>"}, {2})).covers_text);
}

TEST(VocabularyMap, ForeignVocabularyIsRefused) {
  const VocabularyMap map = map_vocabularies(smollm2(), of({"a", "b"}));
  EXPECT_FALSE(check_useful(map).ok());
  EXPECT_NE(check_useful(map).message().find("2 of 49152"), std::string::npos);
  EXPECT_EQ(map.first_differences.size(), 2u);
}

TEST(VocabularyMap, ReducedDraftVocabularyIsUseful) {
  Vocabulary v = smollm2_vocabulary();
  v.merges.clear();
  v.tokens.erase(v.tokens.begin() + 17, v.tokens.begin() + 1000);
  v.types.resize(v.tokens.size());
  const Tokenizer draft = Tokenizer::create(v).take();
  const VocabularyMap map = map_vocabularies(draft, smollm2());
  EXPECT_FALSE(map.identity);
  EXPECT_EQ(map.n_shared, draft.size());
  EXPECT_EQ(map.to_target[17], 1000);
  EXPECT_EQ(map.to_draft[1000], 17);
  EXPECT_TRUE(check_useful(map).ok());
}

}  // namespace
}  // namespace pf
