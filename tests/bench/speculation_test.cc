// Truth: level 0, tallies and formula worked out by hand; and the engine's own drafter through the
// whole command (kernels_test.cc runs that).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "bench/speculation_figures.h"
#include "bench/speculation_prompts.h"

namespace pf {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

// Four rounds gave ten tokens: two drafted one token, two drafted two; of four first tokens three
// were kept, of two second ones one. (10 = 4 of the target + 4 kept + 2 more that came of a longer
// list elsewhere: the tally does not ask where tokens come from.)
SpeculationTally four_rounds() {
  SpeculationTally t;
  t.n_tokens = 10;
  t.n_rounds = 4;
  t.drafted_at = {4, 2};
  t.accepted_at = {3, 1};
  t.rounds_of = {0, 2, 2};
  t.drafted_by = {0, 6};
  return t;
}

TEST(SpeculationTally, CountsOfRounds) {
  SpeculationTally t = four_rounds();
  EXPECT_DOUBLE_EQ(t.accepted_length(), 2.5);
  EXPECT_THAT(t.acceptance(), ElementsAre(0.75, 0.5));
  EXPECT_DOUBLE_EQ(t.mean_length(), 1.5);
  // 2 (0.1 + 1.2) + 2 (2 x 0.1 + 1.5) = 6 target steps for 10 tokens.
  double v[] = {1, 1.2, 1.5};
  EXPECT_DOUBLE_EQ(t.predicted_speedup({.token = {9, 0.1}}, v), 10.0 / 6);
}

TEST(SpeculationTally, WithFixedLengthsIsTheFormula) {
  SpeculationTally t;
  t.n_tokens = 21;
  t.n_rounds = 7;
  t.drafted_at = {7, 7, 7};
  t.accepted_at = {6, 5, 3};
  t.rounds_of = {0, 0, 0, 7};
  t.drafted_by = {21};
  double v[] = {1, 1.02, 1.04, 1.06};
  EXPECT_DOUBLE_EQ(t.predicted_speedup({.token = {0.05}}, v), 3 / (3 * 0.05 + 1.06));
}

TEST(SpeculationTally, AddsAnswersOfAnyDepth) {
  DriverRun first, second;
  first.tokens = {{1, 2, 3, 4}};
  first.n_rounds = 2;
  first.drafted_at = {2};
  first.accepted_at = {1};
  first.rounds_of = {0, 2};
  first.drafted_by = {2};
  second.tokens = {{5, 6}};
  second.n_rounds = 1;
  second.drafted_at = {1, 1, 1};
  second.accepted_at = {0, 0, 0};
  second.rounds_of = {0, 0, 0, 1};
  second.drafted_by = {0, 3};
  SpeculationTally t;
  t.add(first);
  t.add(second);
  EXPECT_EQ(t.n_answers, 2);
  EXPECT_THAT(t.drafted_by, ElementsAre(2, 3));
  EXPECT_EQ(t.n_tokens, 4);  // behind the first tokens: 3 and 1
  EXPECT_EQ(t.n_rounds, 3);
  EXPECT_THAT(t.drafted_at, ElementsAre(3, 1, 1));
  EXPECT_THAT(t.accepted_at, ElementsAre(1, 0, 0));
  EXPECT_THAT(t.rounds_of, ElementsAre(0, 2, 0, 1));
}

// Seven nodes on two levels are seven rows of the target, not two: 3 / (7 x 0.01 + 1.2).
TEST(SpeculationTally, ATreeCostsItsNodes) {
  SpeculationTally t;
  t.n_tokens = 6;
  t.n_rounds = 2;
  t.drafted_at = {6, 8};
  t.accepted_at = {2, 2};
  t.rounds_of = {0, 0, 0, 0, 0, 0, 0, 2};
  t.drafted_by = {14};
  double v[] = {1, 1, 1, 1, 1, 1, 1, 1.2};
  EXPECT_DOUBLE_EQ(t.mean_length(), 7);
  EXPECT_DOUBLE_EQ(t.predicted_speedup({.token = {0.01}}, v), 3 / 1.27);
}

// Ten tokens by n-grams for nothing and four by a model at .05 are .2 target steps in four rounds;
// v is 1.1 for all. Hidden states cost .02 a round, the prompt .4 in all.
TEST(SpeculationTally, EachTokenCostsWhatItsDrafterCosts) {
  SpeculationTally t;
  t.n_answers = 1;
  t.n_tokens = 12;
  t.n_rounds = 4;
  t.drafted_at = {4, 4, 4, 2};
  t.rounds_of = {0, 0, 0, 2, 2};
  t.drafted_by = {10, 4};
  double v[] = {1, 1, 1, 1.1, 1.1};
  DraftCosts costs{{0, 0.05}, 0.02, 0.4};
  EXPECT_DOUBLE_EQ(t.proposing(costs), 0.05);
  EXPECT_DOUBLE_EQ(t.mean_cost(costs), 0.2 / 14);
  EXPECT_DOUBLE_EQ(t.verifying(v), 1.1);
  EXPECT_DOUBLE_EQ(t.upkeep(costs), 0.12);
  EXPECT_DOUBLE_EQ(t.predicted_speedup(costs, v), 3 / 1.15);
  EXPECT_DOUBLE_EQ(t.speedup_with_upkeep(costs, v), 3 / 1.27);
}

// Two answers at 100 steps a second: one of n-grams that cost nothing, one of 5 tokens by the model
// in 4 ms, .08 steps each. Half of the answers would say that a token costs nothing, or .08.
TEST(DraftCostSums, AreMeansOverTokensNotOverAnswers) {
  DriverRun copied, drafted;
  copied.tokens = {{1, 2, 3}};
  copied.n_rounds = 2;
  copied.drafted_by = {8};
  copied.propose_s = {0, 0};
  drafted.tokens = {{1, 2}};
  drafted.n_rounds = 6;
  drafted.drafted_by = {0, 5};
  drafted.propose_s = {0, 0.004};
  drafted.absorb_s = 0.008;
  drafted.catch_up_s = 0.01;
  DraftCostSums sums;
  sums.add(copied, 100);
  sums.add(drafted, 100);
  DraftCosts costs = sums.mean();
  EXPECT_THAT(costs.token, ElementsAre(0, DoubleEq(0.08)));
  EXPECT_DOUBLE_EQ(costs.absorb, 0.1);
  EXPECT_DOUBLE_EQ(costs.catch_up, 0.5);
  costs = DraftCostSums().mean();
  EXPECT_TRUE(costs.token.empty());
  EXPECT_EQ(costs.absorb, 0);
}

// K = 0: 20 tokens in 2 s, 1.8 of them the target's: a step is .1 s, .09 of it the target's. With
// drafts: 10 rounds of 2 tokens in 1.4 s, 14 steps. The formula: c = .05, v(3) = 1.1: 1.2 a round.
TEST(RoundCosts, TheTermsAddUpToTheRound) {
  DriverRun plain, drafted;
  plain.tokens = {std::vector<int32_t>(11, 1)};
  plain.decode_s = 1;
  plain.target_s = 0.9;
  drafted.tokens = {std::vector<int32_t>(21, 1)};
  drafted.decode_s = 1.4;
  drafted.n_rounds = 10;
  drafted.rounds_of = {0, 0, 10};
  drafted.drafted_by = {20};
  drafted.propose_s = {0.14};  // .14 steps a round, .1 foretold
  drafted.target_s = 1.05;     // 1.05 a round, 1.1 x .9 = .99 foretold
  drafted.absorb_s = 0.03;     // .05 a round
  drafted.catch_up_s = 0.02;
  // The rest is .16 s: .16 a round, 1.1 x .1 = .11 foretold.
  double v[] = {1, 1.05, 1.1};
  RoundCosts costs;
  EXPECT_TRUE(std::isnan(costs.mean().round));
  for (int i = 0; i < 2; ++i) costs.add(plain, drafted, plain, {.token = {0.05}}, v);
  EXPECT_EQ(costs.n_rounds(), 20);
  RoundCosts::Terms t = costs.mean();
  EXPECT_NEAR(t.round, 1.4, 1e-9);
  EXPECT_NEAR(t.formula, 1.2, 1e-9);
  EXPECT_NEAR(t.propose, 0.04, 1e-9);
  EXPECT_NEAR(t.verify, 0.06, 1e-9);
  EXPECT_NEAR(t.upkeep, 0.05, 1e-9);
  EXPECT_NEAR(t.host, 0.05, 1e-9);
  EXPECT_NEAR(t.formula + t.propose + t.verify + t.upkeep + t.host, t.round, 1e-9);
}

TEST(SpeculationTally, OfNothingIsNoNumber) {
  SpeculationTally t;
  double v[] = {1};
  EXPECT_TRUE(std::isnan(t.accepted_length()));
  EXPECT_TRUE(std::isnan(t.predicted_speedup({}, v)));
  EXPECT_EQ(join_rates(t.acceptance()), "-");
  EXPECT_EQ(join_rates({0.5, 0.256}), "0.50 0.26");
}

TEST(ChainSpeedup, ByHandAndBack) {
  EXPECT_DOUBLE_EQ(chain_speedup(0.5, 2, 0.1, 1), 1.75 / 1.2);
  EXPECT_DOUBLE_EQ(chain_speedup(1, 4, 0.25, 1), 2.5);
  EXPECT_DOUBLE_EQ(chain_speedup(0, 4, 0.25, 1), 0.5);
  for (double a : {0.1, 0.5, 0.9})
    EXPECT_NEAR(implied_acceptance(chain_speedup(a, 5, 0.02, 1.1), 5, 0.02, 1.1), a, 1e-9);
  EXPECT_TRUE(std::isnan(implied_acceptance(7, 5, 0.02, 1)));    // six tokens cannot give it
  EXPECT_TRUE(std::isnan(implied_acceptance(0.5, 5, 0.02, 1)));  // less than nothing kept
  EXPECT_TRUE(std::isnan(implied_acceptance(2, 5, NAN, 1)));
  EXPECT_EQ(implied_acceptance(chain_speedup(0, 3, 0.1, 1), 3, 0.1, 1), 0);
}

class PromptFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  ~PromptFile() override { std::remove(path_.c_str()); }
  std::string path_ = testing::TempDir() + "prompts." + std::to_string(getpid());
};

TEST_F(PromptFile, KindsInTheirOrderAndNoMoreThanAsked) {
  std::string file = write(R"({"b": ["one", "two", "three"], "a": ["four"]})");
  PromptSet set = *read_prompts(file, "tiny", {}, 2);
  ASSERT_EQ(set.kinds.size(), 2u);
  EXPECT_EQ(set.kinds[0].name, "b");
  EXPECT_EQ(set.kinds[0].prompts.size(), 2u);
  EXPECT_THAT(set.kinds[0].prompts[1], ElementsAre('t', 'w', 'o'));
  EXPECT_EQ(read_prompts(file, "tiny", {"a"}, 9)->kinds.size(), 1u);
}

TEST_F(PromptFile, CodeThatShallBeChangedForetellsTheAnswer) {
  std::string file =
      write(R"({"a": ["Edit.\n\n```\nx = 1\n```", "No code", "```\n", "```\n```"]})");
  PromptSet set = *read_prompts(file, "tiny", {}, 9);
  const auto& predicted = set.kinds[0].predicted;
  ASSERT_EQ(predicted.size(), 4u);
  EXPECT_THAT(predicted[0], ElementsAre('x', ' ', '=', ' ', '1', '\n'));
  for (size_t i : {1, 2, 3}) EXPECT_TRUE(predicted[i].empty()) << i;
}

TEST_F(PromptFile, WhatIsWrongIsNamed) {
  EXPECT_THAT(read_prompts("no/such.json", "tiny", {}, 1).status().message(),
              HasSubstr("no/such.json"));
  for (const char* bad : {"", "[]", "{}", "{", R"({"a": []})", R"({"a": [1]})", R"({"a": [""]})"})
    EXPECT_THAT(read_prompts(write(bad), "tiny", {}, 1).status().message(), HasSubstr(path_))
        << bad;
  EXPECT_THAT(read_prompts(write(R"({"a": ["x"]})"), "tiny", {"z"}, 1).status().message(),
              HasSubstr("'z'"));
}

TEST(Prompts, TheShippedOnesAreThreeTimesTwenty) {
  PromptSet set = *read_prompts(PF_SOURCE_DIR "/bench/prompts/speculation.json", "tiny", {}, 100);
  std::vector<std::string> names;
  for (const PromptKind& kind : set.kinds) {
    names.push_back(kind.name);
    EXPECT_EQ(kind.prompts.size(), 20u) << kind.name;
    for (const auto& text : kind.predicted) EXPECT_EQ(text.empty(), kind.name != "code edit");
  }
  EXPECT_THAT(names, ElementsAre("chat", "code edit", "summarise"));
}

}  // namespace
}  // namespace pf
