// Truth: hand-worked walks through small trees.
#include "sampling/accept.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pf {
namespace {

// Logits of a row in which `token` wins.
std::vector<float> row_for(int32_t token, int v = 8) {
  std::vector<float> row(static_cast<size_t>(v), 0.0f);
  row[static_cast<size_t>(token)] = 5;
  return row;
}

struct Case {
  DraftTree tree;
  std::vector<float> logits;
  SamplingParams params;
  StopParams stop;
  AcceptInput in{};

  void rows(std::initializer_list<std::vector<float>> all) {
    for (auto& r : all) logits.insert(logits.end(), r.begin(), r.end());
  }
  AcceptResult run(int32_t max_tokens = 100) {
    int64_t n = 1 + tree.size();
    in.tree = &tree;
    in.logits = {logits.data(), {n, static_cast<int64_t>(logits.size()) / n}};
    in.params = &params;
    in.stop = &stop;
    in.max_tokens = max_tokens;
    AcceptResult out;
    accept(in, &out);
    return out;
  }
};

using Tokens = std::vector<int32_t>;
using Origins = std::vector<Origin>;

TEST(Accept, WithoutADraftOneTokenComesFromTheTarget) {
  Case c;
  c.rows({row_for(3)});
  AcceptResult r = c.run();
  EXPECT_EQ(r.tokens, Tokens{3});
  EXPECT_EQ(r.origins, Origins{Origin::kTarget});
  EXPECT_FALSE(r.ended);
}

TEST(Accept, GreedyKeepsWhileEqualThenCorrects) {
  Case c;
  c.tree.add_one_hot(3, -1);
  c.tree.add_one_hot(4, 0);
  c.tree.add_one_hot(6, 1);
  c.rows({row_for(3), row_for(4), row_for(5), row_for(7)});
  AcceptResult r = c.run();
  EXPECT_EQ(r.tokens, (Tokens{3, 4, 5}));
  EXPECT_EQ(r.origins, (Origins{Origin::kDraft, Origin::kDraft, Origin::kCorrected}));
  EXPECT_EQ(r.path, (Tokens{0, 1}));
  EXPECT_EQ(r.n_accepted, 2);
}

TEST(Accept, FullAcceptanceEarnsABonusToken) {
  Case c;
  c.tree.add_one_hot(3, -1);
  c.rows({row_for(3), row_for(4)});
  AcceptResult r = c.run();
  EXPECT_EQ(r.tokens, (Tokens{3, 4}));
  EXPECT_EQ(r.origins, (Origins{Origin::kDraft, Origin::kBonus}));
}

TEST(Accept, WalksIntoTheBranchThatMatches) {
  Case c;
  c.tree.add_one_hot(1, -1);  // 0
  c.tree.add_one_hot(2, -1);  // 1
  c.tree.add_one_hot(5, 0);   // 2, below the wrong branch
  c.tree.add_one_hot(6, 1);   // 3
  c.rows({row_for(2), row_for(0), row_for(6), row_for(0), row_for(7)});
  for (Acceptance rule : {Acceptance::kRejection, Acceptance::kCoupled}) {
    c.in.policy.rule = rule;
    AcceptResult r = c.run();
    EXPECT_EQ(r.tokens, (Tokens{2, 6, 7}));
    EXPECT_EQ(r.path, (Tokens{1, 3}));
  }
}

TEST(Accept, StopsBehindAnEndToken) {
  Case c;
  c.tree.add_one_hot(3, -1);
  c.tree.add_one_hot(4, 0);
  c.rows({row_for(3), row_for(4), row_for(5)});
  c.stop.end_ids = {3};
  AcceptResult r = c.run();
  EXPECT_EQ(r.tokens, Tokens{3});
  EXPECT_TRUE(r.ended);
}

TEST(Accept, AnEndTokenIsBannedUntilTheMinimumAndThenAllowed) {
  Case c;  // the target wants token 3 everywhere; second choice is 0 (lowest of the equal ones)
  c.tree.add_one_hot(0, -1);
  c.rows({row_for(3), row_for(3)});
  c.stop.end_ids = {3};
  c.stop.min_new_tokens = 5;
  c.in.n_generated = 4;  // the first drawn token is number 5, the second number 6
  AcceptResult r = c.run();
  EXPECT_EQ(r.tokens, (Tokens{0, 3}));
  EXPECT_TRUE(r.ended);
}

TEST(Accept, CutsAtTheTokensThatAreStillAllowed) {
  Case c;
  c.tree.add_one_hot(3, -1);
  c.tree.add_one_hot(4, 0);
  c.rows({row_for(3), row_for(4), row_for(5)});
  EXPECT_EQ(c.run(2).tokens, (Tokens{3, 4}));
  EXPECT_EQ(c.run(1).tokens, Tokens{3});
}

TEST(Accept, APenaltySeesTheDraftedTokensBeforeIt) {
  Case c;  // 3 wins by 5 against 0; once 3 stands in the output, a presence penalty of 2 three
           // times over frequency 2 brings it below: 5 - 2 - 2 = 1 > 0, 5 - 2 - 4 = -1 < 0
  c.params.presence_penalty = 2;
  c.params.frequency_penalty = 2;
  TokenCounts counts;
  c.in.counts = &counts;
  c.tree.add_one_hot(3, -1);
  c.tree.add_one_hot(3, 0);
  c.rows({row_for(3), row_for(3), row_for(3)});
  EXPECT_EQ(c.run().tokens, (Tokens{3, 3, 0}));
  EXPECT_TRUE(counts.counts().empty()) << "counts are restored";
}

TEST(Accept, ANonFiniteRowEndsOnlyWhatNeedsIt) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  Case c;
  c.tree.add_one_hot(3, -1);
  c.rows({row_for(3), std::vector<float>(8, nan)});
  AcceptResult r = c.run();
  EXPECT_FALSE(r.finite);
  EXPECT_EQ(r.tokens, Tokens{3});
  Case rejected;  // the bad row is behind a rejected token: nobody reads it
  rejected.tree.add_one_hot(4, -1);
  rejected.rows({row_for(3), std::vector<float>(8, nan)});
  EXPECT_TRUE(rejected.run().finite);
}

TEST(Accept, ThresholdKeepsBelowTheArgmaxAndCountsIt) {
  Case c;  // at temperature 0: softmax scores .6 and .3 of tokens 1 and 2; the draft says 2 with .5
  c.logits = {0, std::log(0.6f / 0.1f), std::log(0.3f / 0.1f), 0, 0, 0};
  c.tree.add_one_hot(2, -1, 0.5f);
  std::vector<float> one(c.logits.begin(), c.logits.begin() + 3);
  c.in.policy.rule = Acceptance::kThreshold;
  c.in.policy.alpha = 0.59f;  // .3 / .5 = .6
  AcceptResult r = c.run();
  EXPECT_EQ(r.tokens[0], 2);
  EXPECT_DOUBLE_EQ(r.loss(), 1) << "one kept token that is not the argmax";
  c.in.policy.alpha = 0.61f;
  EXPECT_EQ(c.run().tokens, Tokens{1});
  c.in.policy.alpha = 0.59f;
  c.in.policy.loss_budget = 0.5f;
  r = c.run();
  EXPECT_EQ(r.tokens, Tokens{1}) << "a budget is never overshot";
  EXPECT_EQ(r.loss(), 0);
}

TEST(Accept, TypicalUsesTheEntropyOfTheTarget) {
  // p uniform over 4: H = log 4, delta exp(-H) = .3 / 4 = .075 <= eps; every token passes (.25).
  Case c;
  c.params.temperature = 1;
  c.logits = std::vector<float>(8, 0.0f);
  c.tree.add_one_hot(2, -1);
  c.in.policy.rule = Acceptance::kTypical;
  AcceptResult r = c.run();
  EXPECT_EQ(r.tokens[0], 2);
  EXPECT_NEAR(r.loss(), 0.75, 1e-6) << "1 - p(x)";
  // p nearly one-hot on 0: H ~ 0, the bar is eps = .09; token 2 has far less.
  c.logits[0] = 9;
  EXPECT_EQ(c.run().origins[0], Origin::kCorrected);
}

// p = (.1, .45, .45), q = (.8, .1, .1), alpha .5: tokens 1 and 2 pass, 0 does not. Of two siblings
// drawn without replacement one always passes, as often 1 as 2: the law is (0, .5, .5), its
// distance to p .1. One sibling passes with .2: (0, .1, .1) + .8 p, which is .02 away.
TEST(Accept, TheLossOfSiblingsAveragesToTheirTotalVariation) {
  const std::vector<float> q = {0.8f, 0.1f, 0.1f};
  auto loss_of = [&](Tokens children) {
    Case c;
    c.params.temperature = 1;
    for (size_t row = 0; row <= children.size(); ++row)
      c.rows({{std::log(0.1f), std::log(0.45f), std::log(0.45f)}});
    for (int32_t x = 0; x < 3; ++x) c.tree.q_entries.push_back({x, q[static_cast<size_t>(x)]});
    for (int32_t x : children) c.tree.add(x, -1, 0, q[static_cast<size_t>(x)]);
    c.in.policy.rule = Acceptance::kThresholdLiteral;
    c.in.policy.alpha = 0.5f;
    AcceptResult r = c.run();
    return r.losses.empty() ? 0.0 : static_cast<double>(r.losses[0]);
  };
  for (Tokens one : {Tokens{0}, Tokens{1}, Tokens{2}}) EXPECT_NEAR(loss_of(one), 0.02, 1e-6);
  // P(0 first) = .8, then 1 or 2 with .5 each; P(1 first) = P(2 first) = .1, and the second is not
  // judged.
  double mean =
      0.4 * loss_of({0, 1}) + 0.4 * loss_of({0, 2}) + 0.1 * loss_of({1, 0}) + 0.1 * loss_of({2, 0});
  EXPECT_NEAR(mean, 0.1, 1e-6);
}

}  // namespace
}  // namespace pf
