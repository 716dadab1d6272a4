// Truth: the definition of the longest earlier match, as a loop over all places; and texts worked
// by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "speculation/ngram_drafter.h"

namespace pf {
namespace {

// The latest place before the end whose preceding tokens equal the last `length` of the text, for
// the greatest length up to kMaxN that has one.
NgramIndex::Match define(const std::vector<int32_t>& text) {
  int64_t n = static_cast<int64_t>(text.size());
  for (int64_t length = std::min<int64_t>(NgramIndex::kMaxN, n); length >= 1; --length)
    for (int64_t next = n - 1; next >= length; --next)
      if (std::equal(text.end() - length, text.end(), text.begin() + next - length))
        return {static_cast<int32_t>(length), next};
  return {};
}

TEST(NgramIndex, FindsWhatTheDefinitionFindsAtEveryLength) {
  std::mt19937 rng(1);
  for (int32_t vocabulary : {1, 2, 3, 5, 8, 40, 1000})
    for (int round = 0; round < 40; ++round) {
      std::vector<int32_t> text;
      NgramIndex index;
      while (text.size() < 150) {
        for (uint32_t step = 1 + rng() % 6; step > 0; --step)
          text.push_back(static_cast<int32_t>(rng() % static_cast<uint32_t>(vocabulary)));
        index.update(text);
        NgramIndex::Match want = define(text), got = index.find(text);
        ASSERT_EQ(got.length, want.length) << "vocabulary " << vocabulary << " n " << text.size();
        ASSERT_EQ(got.next, want.next) << "vocabulary " << vocabulary << " n " << text.size();
      }
    }
}

// The table grows many times under a long text, and collides.
TEST(NgramIndex, ALongTextIsKnownInATableOf128BytesPerTokenAtMost) {
  std::mt19937 rng(2);
  for (uint32_t vocabulary : {2u, 30u, 50000u}) {
    std::vector<int32_t> text;
    NgramIndex index;
    while (text.size() < 6000) {
      uint32_t step = text.empty() ? 3000 : 1 + rng() % 7;  // a prompt, then rounds of decoding
      for (; step > 0; --step) {
        bool copies = text.size() > 100 && rng() % 3 > 0;
        text.push_back(copies ? text[text.size() - 1 - rng() % 90]
                              : static_cast<int32_t>(rng() % vocabulary));
      }
      index.update(text);
      NgramIndex::Match want = define(text), got = index.find(text);
      ASSERT_EQ(got.length, want.length) << "vocabulary " << vocabulary << " n " << text.size();
      ASSERT_EQ(got.next, want.next) << "vocabulary " << vocabulary << " n " << text.size();
      ASSERT_LE(index.table_bytes(), 128 * static_cast<int64_t>(text.size() + 16));
    }
  }
}

// What the definition finds, copied token by token as if each had been appended to the text.
std::vector<int32_t> define_proposal(std::vector<int32_t> text, int32_t min_match, int32_t n) {
  NgramIndex::Match m = define(text);
  std::vector<int32_t> proposed;
  if (m.length < min_match) return proposed;
  for (int32_t i = 0; i < n; ++i) {
    proposed.push_back(text[static_cast<size_t>(m.next + i)]);
    text.push_back(proposed.back());
  }
  return proposed;
}

TEST(NgramDrafter, ProposesWhatTheDefinitionProposesForTextsThatGrowSideBySide) {
  std::mt19937 rng(3);
  constexpr size_t kTexts = 5;
  for (int32_t min_match : {1, 2}) {
    NgramDrafter drafter(min_match);
    std::vector<Request> requests(kTexts);
    std::vector<Sequence> sequences(kTexts);
    for (size_t i = 0; i < kTexts; ++i) {
      sequences[i].request = &requests[i];
      sequences[i].order = i;
      sequences[i].tokens = {1};
    }
    int32_t n_proposed = 0;
    for (int round = 0; round < 300; ++round) {
      Sequence& s = sequences[rng() % kTexts];
      if (rng() % 50 == 0) {  // it ends, and another one takes its name
        drafter.forget(s);
        s.tokens = {static_cast<int32_t>(rng() % 3)};
      }
      for (uint32_t step = rng() % 4; step > 0; --step)
        s.tokens.push_back(static_cast<int32_t>(rng() % 4));
      DraftTask task;
      task.sequence = &s;
      task.n_draft = static_cast<int32_t>(rng() % 9);
      DraftTree tree;
      int32_t length = drafter.match_length(s);
      drafter.propose({&task, 1}, {&tree, 1});
      EXPECT_EQ(length, drafter.match_length(s)) << "asked again";
      int32_t want = define(s.tokens).length;
      EXPECT_EQ(length, want < min_match ? 0 : want);
      ASSERT_EQ(tree.tokens, define_proposal(s.tokens, min_match, task.n_draft));
      n_proposed += tree.size();
    }
    EXPECT_GT(n_proposed, 500);
  }
}

// A token equal to an n-gram's length made the hash forget the tokens before it: 2-gram (2, b) met
// 1-gram (b ^ 1), overwrote it, and was compared with tokens in front of the text.
TEST(NgramIndex, ATokenAsLargeAsTheNgramIsLongIsNoOtherNgram) {
  for (int32_t b = 20; b < 32; ++b) {
    NgramIndex index;
    std::vector<int32_t> text = {2, b, 50, b ^ 1, 60, 2, b};  // (2, b) was followed by 50, at 2
    index.update(text);
    EXPECT_EQ(index.find(text).length, 2) << b;
    EXPECT_EQ(index.find(text).next, 2) << b;
    NgramIndex early;
    std::vector<int32_t> nothing = {b ^ 1, 90, 2, b};  // (2, b) is new, and so is b
    early.update(nothing);
    EXPECT_EQ(early.find(nothing).length, 0) << b;
  }
}

TEST(NgramIndex, TheEndingNeverFindsItself) {
  std::vector<int32_t> text = {7, 8, 9};
  NgramIndex index;
  index.update(text);
  EXPECT_EQ(index.find(text).length, 0);
}

}  // namespace
}  // namespace pf
