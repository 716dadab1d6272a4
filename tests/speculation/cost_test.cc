// Truth: curves and acceptance rates that the samples are made from; hand-worked choices.
#include <gtest/gtest.h>

#include <random>

#include "speculation/acceptance_model.h"
#include "speculation/cost_curve.h"
#include "speculation/draft_depths.h"

namespace pf {
namespace {

TEST(CostCurve, AssumesItsShapeUntilItIsMeasured) {
  CostCurve curve(2, 0.1);
  EXPECT_DOUBLE_EQ(curve.at(0), 0);
  EXPECT_DOUBLE_EQ(curve.at(1), 2);
  EXPECT_NEAR(curve.at(6), 3, 1e-12);
  EXPECT_NEAR(curve.at(101), 22, 1e-9);
  curve.observe(3, 0);   // a clock that stands still says nothing
  curve.observe(0, 10);  // nor does a pass without rows
  EXPECT_FALSE(curve.measured());
  for (int i = 0; i < 1000; ++i) curve.observe(3, 4.8);  // twice what was assumed: so is all else
  EXPECT_NEAR(curve.at(3), 4.8, 0.01);
  EXPECT_NEAR(curve.at(1), 4, 0.01);
  EXPECT_NEAR(curve.at(6), 6, 0.01);
}

TEST(CostCurve, LearnsAnyCurveFromNoisySamples) {
  auto truth = [](double m) { return m <= 20 ? 1 + 0.01 * m : 1.2 * m / 20; };
  CostCurve curve(1e-3, 0.03);
  std::mt19937 random(1);
  std::lognormal_distribution<double> noise(0, 0.1);
  std::uniform_int_distribution<int> rows(1, 200);
  for (int i = 0; i < 20000; ++i) {
    int m = rows(random);
    double pause = i % 50 == 7 ? 20 : 1;  // of the machine
    curve.observe(m, truth(m) * noise(random) * pause);
  }
  for (int m = 1; m <= 200; ++m) EXPECT_NEAR(curve.at(m) / truth(m), 1, 0.12) << m;
  for (int m = 1; m < 300; ++m) EXPECT_LE(curve.at(m), curve.at(m + 1));
}

TEST(CostCurve, FollowsAMachineThatBecomesSlowerAtAllRowsTogether) {
  CostCurve curve(1e-3, 0.03);
  for (int i = 0; i < 200; ++i)
    for (int m : {1, 4, 8}) curve.observe(m, 1 + 0.1 * m);
  for (int i = 0; i < 200; ++i) curve.observe(8, 2 * 1.8);
  EXPECT_NEAR(curve.at(8), 3.6, 0.05);
  EXPECT_GT(curve.at(1), 1.5) << "one row was not seen again, but the whole machine is slower";
}

TEST(CostCurve, TheKneeIsWhereAPassCostsTwice) {
  CostCurve curve(1, 0.03);
  for (int i = 0; i < 100; ++i)
    for (int m : {1, 2, 4, 8, 16, 32, 64}) curve.observe(m, 1 + m / 40.0);
  EXPECT_NEAR(curve.knee(), 42, 0.5);  // 1 + m / 40 = 2 (1 + 1 / 40)
  CostCurve young(1, 0.03);
  for (int i = 0; i < 100; ++i)
    for (int m : {1, 2, 4, 8}) young.observe(m, 1 + m / 40.0);
  EXPECT_NEAR(young.knee(), 42, 0.5) << "the line goes on";
}

TEST(Acceptance, LearnsEveryLevelOfEveryDrafterAndForgets) {
  AcceptanceModel model(2);
  DraftHistory history;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> u;
  auto feed = [&](double first, double second, int n) {
    for (int i = 0; i < n; ++i)
      model.observe(1, 9, 2, u(random) >= first ? 0 : u(random) >= second ? 1 : 2, &history);
  };
  feed(0.9, 0.3, 3000);
  std::array<float, 3> a;
  model.estimate(history, 1, 9, a);
  EXPECT_NEAR(a[0], 0.9, 0.08);
  EXPECT_NEAR(a[1], 0.3, 0.12);
  DraftHistory fresh;
  model.estimate(fresh, 1, 9, a);
  EXPECT_NEAR(a[0], 0.9, 0.05) << "a new sequence begins with the server's average";
  model.estimate(fresh, 0, 9, a);
  EXPECT_NEAR(a[0], 0.7, 1e-6) << "the other drafter was not tried";
  model.estimate(fresh, 1, 1, a);
  EXPECT_NEAR(a[0], 0.7, 1e-6) << "nor were short matches";
  feed(0.1, 0.3, 200);
  model.estimate(history, 1, 9, a);
  EXPECT_NEAR(a[0], 0.1, 0.1) << "the sequence's own rounds outweigh the average";
}

TEST(Acceptance, CallsADrafterDeadWhenNextToNothingIsKept) {
  AcceptanceModel model(2);
  DraftHistory history;
  for (int i = 0; i < 96; ++i) model.observe(0, 5, 4, 0, &history);
  EXPECT_FALSE(model.dead(0)) << "96 levels are no proof";
  for (int i = 0; i < 20; ++i) model.observe(0, 5, 4, 0, &history);
  EXPECT_TRUE(model.dead(0));
  EXPECT_FALSE(model.dead(1));
  for (int i = 0; i < 10; ++i) model.observe(0, 5, 4, 2, &history);
  EXPECT_FALSE(model.dead(0));
}

// Two of five first tokens are kept and none of the second ones, drafted 16 deep: 2.5 % of what is
// drafted, but 2 of the 7 levels in five rounds whose parent was kept.
TEST(Acceptance, ALongDraftIsNotDeadForTheLevelsThatItNeverReached) {
  AcceptanceModel model(1);
  DraftHistory history;
  for (int i = 0; i < 500; ++i) model.observe(0, 5, 16, i % 5 < 2 ? 1 : 0, &history);
  EXPECT_FALSE(model.dead(0));
  EXPECT_NEAR(model.rate(), 0.025, 0.001) << "source A's rate is of all that is drafted";
}

// 3,000 rounds of one at .3, then as many of another at .9: the first weighs e^-3 of what it did.
// (.3 e^-3 (1 - e^-3) + .9 (1 - e^-3)) / (1 - e^-6) = (.3 e^-3 + .9) / (1 + e^-3) = .872
TEST(Acceptance, TheRateForgetsADrafterThatDraftsNoMore) {
  AcceptanceModel model(2);
  DraftHistory history;
  EXPECT_EQ(model.rate(), 0);
  for (int i = 0; i < 3000; ++i) model.observe(0, 5, 1, i * 3 % 10 < 3 ? 1 : 0, &history);
  EXPECT_NEAR(model.rate(), 0.3, 0.001);
  for (int i = 0; i < 3000; ++i) model.observe(1, 5, 1, i * 3 % 10 < 9 ? 1 : 0, &history);
  EXPECT_NEAR(model.rate(), 0.872, 0.002);
}

// Two sequences, target costs 1 + rows / 100, a draft pass 0.1 whatever its rows.
struct Choice {
  CostCurve target{1.01, 0.01 / 1.01};
  std::vector<CostCurve> drafts{CostCurve(0.1, 0)};
  std::vector<DepthCandidate> candidates;
  DepthQuestion question{.n_plain_rows = 2, .max_draft_rows = 100, .plain_tokens = 2};

  void add(float a, int32_t depth, float weight = 1) {
    DepthCandidate c{.max_depth = depth, .weight = weight};
    float reach = 1;
    for (int32_t d = 0; d < depth; ++d) {
      c.reach[static_cast<size_t>(d)] = reach *= a;
      c.n_nodes[static_cast<size_t>(d)] = 1;
    }
    candidates.push_back(c);
  }
  DepthAnswer choose() { return choose_depths(question, {&target, drafts}, candidates); }
};

// a = .5: S(1) = 1.5 / 1.12 = 1.34, S(2) = 1.75 / 1.24 = 1.41, S(3) = 1.875 / 1.36 = 1.38.
TEST(Depths, TakesTheBestOfTheFormula) {
  Choice choice;
  choice.add(0.5f, 8);
  choice.add(0.5f, 8);
  DepthAnswer answer = choice.choose();
  EXPECT_EQ(choice.candidates[0].depth, 2);
  EXPECT_EQ(choice.candidates[1].depth, 2);
  EXPECT_EQ(answer.n_nodes, 4);
  EXPECT_NEAR(answer.tokens, 3.5, 1e-6);
  EXPECT_NEAR(answer.seconds, 1 + 6 / 100.0 + 0.2, 1e-6);
}

TEST(Depths, DraftsNothingWhereItDoesNotPay) {
  Choice choice;
  choice.add(0.05f, 8);
  choice.add(0.05f, 8);
  EXPECT_EQ(choice.choose().n_nodes, 0);
  EXPECT_EQ(choice.candidates[0].depth, 0);
}

TEST(Depths, GivesMoreToWhomMoreIsKept) {
  Choice choice;
  choice.add(0.9f, 8);
  choice.add(0.1f, 8);
  choice.choose();
  EXPECT_GE(choice.candidates[0].depth, 5);
  EXPECT_LE(choice.candidates[1].depth, 1);
}

// 64 sequences: the draft pass is dear beside one node and cheap beside a level.
TEST(Depths, AWholeLevelPaysWhereTheFirstNodeAloneDoesNot) {
  Choice choice;
  choice.question = {.n_plain_rows = 64, .max_draft_rows = 1000, .plain_tokens = 64};
  for (int i = 0; i < 64; ++i) choice.add(0.5f, 8);
  choice.choose();
  for (const DepthCandidate& c : choice.candidates) EXPECT_EQ(c.depth, choice.candidates[0].depth);
  EXPECT_GE(choice.candidates[0].depth, 1);
}

TEST(Depths, WhoIsShortOfTimeGoesFirstWhereRowsAreShort) {
  Choice choice;
  choice.question.max_draft_rows = 1;
  choice.add(0.8f, 4);
  choice.add(0.8f, 4, 4);
  choice.question.plain_tokens = 5;
  choice.choose();
  EXPECT_EQ(choice.candidates[0].depth, 0);
  EXPECT_EQ(choice.candidates[1].depth, 1);
}

TEST(Depths, TreesCountTheNodesOfALevel) {
  Choice choice;
  choice.question = {.n_plain_rows = 1, .max_draft_rows = 100, .plain_tokens = 1};
  DepthCandidate c{.max_depth = 2};
  c.reach = {0.9f, 0.5f};
  c.n_nodes = {2, 4};
  choice.candidates = {c};
  DepthAnswer answer = choice.choose();
  EXPECT_EQ(choice.candidates[0].depth, 2);
  EXPECT_EQ(answer.n_nodes, 6);
}

}  // namespace
}  // namespace pf
