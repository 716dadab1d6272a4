// Truth: counting all places of all texts in a loop; and texts worked by hand.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "speculation/suffix_drafter.h"

namespace pf {
namespace {

using Text = std::vector<int32_t>;
constexpr int32_t kMaxMatch = SuffixIndex::kMaxMatch;

struct Follower {
  int32_t count = 0, last = 0;  // how often, and where for the last time
};

// What stood behind `context` in the texts, by token.
std::map<int32_t, Follower> define(const std::vector<Text>& texts, const Text& context) {
  std::map<int32_t, Follower> out;
  int32_t at = 0;
  for (const Text& text : texts)
    for (size_t i = 0; i < text.size(); ++i, ++at)
      if (i >= context.size() && std::equal(context.begin(), context.end(),
                                            text.begin() + static_cast<std::ptrdiff_t>(i) -
                                                static_cast<std::ptrdiff_t>(context.size())))
        out[text[i]] = {out[text[i]].count + 1, at};
  return out;
}

Text ending(const Text& text, int32_t n) { return Text(text.end() - n, text.end()); }

void expect_defined(const SuffixIndex& index, const std::vector<Text>& texts, const Text& context) {
  int32_t longest = std::min(kMaxMatch, static_cast<int32_t>(context.size()));
  while (longest > 0 && define(texts, ending(context, longest)).empty()) --longest;
  ASSERT_EQ(index.match(context), longest);
  for (int32_t n : {longest, longest / 2, 1}) {
    if (n == 0) continue;
    auto want = define(texts, ending(context, n));
    Text got, order;
    for (auto& [token, f] : want) order.push_back(token);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const Follower &x = want[a], &y = want[b];
      return x.count != y.count ? x.count > y.count : x.last > y.last;
    });
    index.followers(ending(context, n), 1000, &got);
    ASSERT_EQ(got, order) << "behind " << n << " tokens";
    index.followers(ending(context, n), 2, &got);
    order.resize(std::min<size_t>(order.size(), 2));
    ASSERT_EQ(got, order);
  }
}

TEST(SuffixIndex, CountsWhatTheDefinitionCountsAfterEveryToken) {
  std::mt19937 rng(5);
  for (uint32_t vocabulary : {1u, 2u, 3u, 6u, 50u})
    for (int round = 0; round < 8; ++round) {
      SuffixIndex index;
      std::vector<Text> texts = {{}};
      for (int i = 0; i < 160; ++i) {
        if (rng() % 40 == 0) {
          index.end_text();
          texts.emplace_back();
        }
        // Some tokens copy what stood seven places before, so that repetitions grow long.
        Text& text = texts.back();
        int32_t token = static_cast<int32_t>(rng() % vocabulary);
        if (text.size() > 7 && rng() % 4 != 0) token = text[text.size() - 7];
        text.push_back(token);
        index.append(token);
        expect_defined(index, texts, text);
        if (HasFatalFailure()) FAIL() << "vocabulary " << vocabulary << " token " << i;
      }
      Text strange;
      for (int i = 0; i < 40; ++i) strange.push_back(static_cast<int32_t>(rng() % vocabulary));
      expect_defined(index, texts, strange);
    }
}

TEST(SuffixIndex, AContextIsNotContinuedAcrossTexts) {
  SuffixIndex index;
  for (int32_t t : {1, 2, 3}) index.append(t);
  index.end_text();
  for (int32_t t : {4, 5}) index.append(t);
  EXPECT_EQ(index.match(Text{3}), 0);
  EXPECT_EQ(index.match(Text{1, 2}), 2);
}

// What one text only began must not count for what lies further down the same edge.
TEST(SuffixIndex, ATextThatEndedWithinAnEdgeCountsForItsUpperPartOnly) {
  SuffixIndex index;
  for (const Text& text : {Text{1, 2, 3}, Text{1, 2}, Text{1, 2, 4}}) {
    for (int32_t t : text) index.append(t);
    index.end_text();
  }
  Text got;
  index.followers(Text{1, 2}, 2, &got);
  EXPECT_EQ(got, (Text{4, 3})) << "once each; 4 was the last";
}

TEST(SuffixMemory, IsBounded) {
  SuffixMemory memory(100);
  for (int32_t i = 0; i < 1000; ++i) {
    memory.append(i);
    ASSERT_LE(memory.n_tokens(), 200);
  }
  EXPECT_EQ(memory.recent().match(Text{950}) + memory.older().match(Text{950}), 1);
  EXPECT_EQ(memory.recent().match(Text{700}) + memory.older().match(Text{700}), 0);
}

struct Told {
  Request request;
  Sequence sequence;

  Told(uint64_t order, const std::string& salt, Text prompt, const Text& output) {
    request.prompt = std::move(prompt);
    request.cache_salt = salt;
    sequence.request = &request;
    sequence.order = order;
    sequence.tokens = request.prompt;
    sequence.tokens.insert(sequence.tokens.end(), output.begin(), output.end());
  }
  DraftTree draft(SuffixDrafter* drafter, int32_t n, std::vector<int32_t> widths = {}) {
    DraftTask task;
    task.sequence = &sequence;
    task.n_draft = n;
    task.shape = {widths};
    DraftTree tree;
    drafter->propose({&task, 1}, {&tree, 1});
    return tree;
  }
};

TEST(SuffixDrafter, ProposesTheMostFrequentContinuationAndGoesOnInALoop) {
  SuffixDrafter drafter(1);
  Told t(1, "", {1, 2, 3, 20, 1, 2, 4, 21, 1, 2, 3, 22, 1, 2}, {});
  EXPECT_EQ(t.draft(&drafter, 4).tokens, (Text{3, 22, 1, 2})) << "3 twice, 4 once";
  Told loop(2, "", {5, 6, 5, 6, 5}, {});
  EXPECT_EQ(loop.draft(&drafter, 5).tokens, (Text{6, 5, 6, 5, 6}));
}

TEST(SuffixDrafter, SiblingsAreTheMostFrequentContinuations) {
  SuffixDrafter drafter(1);
  Told t(1, "", {1, 2, 20, 1, 3, 21, 1, 3, 22, 1, 4, 23, 1}, {});
  DraftTree tree = t.draft(&drafter, 4, {2, 1});
  EXPECT_EQ(tree.tokens, (Text{3, 4, 22, 23})) << "3 twice, then 4, which was the last";
  EXPECT_EQ(tree.parents, (Text{-1, -1, 0, 1}));
  for (int32_t node = 0; node < tree.size(); ++node) EXPECT_TRUE(tree.q(node).empty());
}

// One node more than allowed lay behind the slots that were reserved for the sequence.
TEST(SuffixDrafter, ATreeThatWasCutHasNoNodeMoreThanAllowed) {
  SuffixDrafter drafter(1);
  Told t(1, "", {1, 2, 20, 1, 3, 21, 1, 3, 22, 1, 4, 23, 1}, {});
  for (int32_t n = 1; n < 8; ++n) EXPECT_LE(t.draft(&drafter, n, {2, 2, 2}).size(), n);
}

TEST(SuffixDrafter, RemembersOutputsOfTheSameSaltOnly) {
  SuffixDrafter drafter(1);
  Told first(1, "alice", {40, 41}, {10, 11, 12, 13});
  drafter.forget(first.sequence);
  Told friendly(2, "alice", {1, 10, 11}, {}), other(3, "bob", {1, 10, 11}, {}),
      nobody(4, "", {1, 10, 11}, {}), prompt(5, "alice", {40}, {});
  EXPECT_EQ(friendly.draft(&drafter, 2).tokens, (Text{12, 13}));
  EXPECT_EQ(other.draft(&drafter, 2).size(), 0);
  EXPECT_EQ(nobody.draft(&drafter, 2).size(), 0);
  EXPECT_EQ(prompt.draft(&drafter, 2).size(), 0) << "prompts are not remembered";
}

TEST(SuffixDrafter, ForgetsTheSaltThatWasUnusedForLongest) {
  SuffixDrafter drafter(1);
  Text output(static_cast<size_t>(SuffixDrafter::kOutputTokens));
  uint64_t order = 0;
  for (int32_t salt = 0; salt < 200; ++salt) {
    for (size_t i = 0; i < output.size(); ++i) output[i] = salt * 2000 + static_cast<int32_t>(i);
    drafter.forget(Told(++order, std::to_string(salt), {1}, output).sequence);
    ASSERT_LE(drafter.n_shared_tokens(), SuffixDrafter::kAllShared);
  }
  EXPECT_EQ(Told(++order, "0", {5}, {}).draft(&drafter, 1).size(), 0);
  EXPECT_EQ(Told(++order, "199", {199 * 2000 + 5}, {}).draft(&drafter, 1).tokens,
            (Text{199 * 2000 + 6}));
}

TEST(SuffixDrafter, TakesALongPromptInStepByStep) {
  SuffixDrafter drafter(1);
  Told t(1, "", Text(5000, 3), {});
  EXPECT_EQ(drafter.match_length(t.sequence), 0);
  EXPECT_EQ(drafter.match_length(t.sequence), 0);
  EXPECT_EQ(drafter.match_length(t.sequence), kMaxMatch);
}

}  // namespace
}  // namespace pf
