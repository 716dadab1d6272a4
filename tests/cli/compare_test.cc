// Truth: hand-worked numbers, arithmetic in comments.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/compare_stats.h"

namespace pf {
namespace {

std::vector<float> logits_of(std::vector<double> p) {
  std::vector<float> logits;
  for (double v : p) logits.push_back(static_cast<float>(std::log(v)));
  return logits;
}

// p = .4 .3 .1 .1 .05 .05 0, q = .1 .3 .1 .4 .05 0 .05: the fives share 0 1 2 3 4: 5 of 5.
// TV = (.3 + 0 + 0 + .3 + 0 + .05 + .05) / 2 = .35
TEST(Compare, TotalVariationAndTopFive) {
  double none = std::exp(-80.0);
  PositionComparison c = compare_position(logits_of({.4, .3, .1, .1, .05, .05, none}),
                                          logits_of({.1, .3, .1, .4, .05, none, .05}));
  EXPECT_NEAR(c.total_variation, 0.35, 1e-6);
  EXPECT_NEAR(c.jaccard, 1, 1e-9);
  ASSERT_EQ(c.target_top.size(), 5u);
  EXPECT_EQ(c.target_top[0].first, 0);
  EXPECT_NEAR(c.target_top[0].second, 0.4, 1e-6);
  EXPECT_EQ(c.target_top[2].first, 2) << "equal ones by their id";
  EXPECT_EQ(c.draft_top[0].first, 3);
}

// Fives {0..4} and {3..7}: 2 of 8.
TEST(Compare, JaccardOfTwoFives) {
  std::vector<float> a = {9, 8, 7, 6, 5, 0, 0, 0}, b = {0, 0, 0, 5, 6, 7, 8, 9};
  EXPECT_NEAR(compare_position(a, b).jaccard, 0.25, 1e-9);
  EXPECT_NEAR(compare_position(a, a).jaccard, 1, 1e-9);
  EXPECT_NEAR(compare_position(a, a).total_variation, 0, 1e-9);
}

// A reduced head gives -inf to what it cannot say.
TEST(Compare, ATokenThatTheDraftCannotSayIsLost) {
  float never = -std::numeric_limits<float>::infinity();
  PositionComparison c = compare_position(std::vector<float>{0, 0}, std::vector<float>{0, never});
  EXPECT_NEAR(c.total_variation, 0.5, 1e-9);
}

// Target tokens 0, 1, 2 are the draft's 2, none, 0. Its token 1 stands for 0 too, but is not what 0
// is fed as, so it is never said.
TEST(Compare, ADraftsLogitsGetTheTargetsNames) {
  std::vector<float> own = {1, 2, 3};
  EXPECT_EQ(translate_logits(own, {}), own);
  DraftVocabulary v{{2, 0, 0}, {2, -1, 0}, {0, 0, 0, 0}, {}};
  v.fit(3, 3);
  EXPECT_EQ(translate_logits(own, v),
            (std::vector<float>{3, -std::numeric_limits<float>::infinity(), 1}));
}

// K = 5, c = .065, v(6) = 1.05: a refused round costs .325 + 1.05 = 1.375; with 3.3 tokens a round
// the speed-up is 2.4.
TEST(Compare, CostsAndGoals) {
  CompareReport r;
  r.draft = "model";
  r.k = 5;
  r.step_ratio = 0.065;
  r.verify_ratio = 1.05;
  r.accepted_length = 3.3;
  PositionComparison position;
  for (auto [jaccard, variation] : {std::pair(0.5, 0.25), std::pair(0.74, 0.5)}) {
    position.jaccard = jaccard;
    position.total_variation = variation;
    r.add(position);
  }
  r.plain_tokens_per_s = 10;
  r.tokens_per_s = 23;
  EXPECT_NEAR(r.jaccard(), 0.62, 1e-9);
  EXPECT_NEAR(r.kept_at_best(), 0.625, 1e-9);
  EXPECT_NEAR(r.rollback_cost(), 1.375, 1e-9);
  EXPECT_NEAR(r.predicted_speedup(), 2.4, 1e-9);
  EXPECT_NEAR(r.measured_speedup(), 2.3, 1e-9);
  for (const CompareGoal& g : compare_goals(r)) EXPECT_TRUE(g.pass()) << g.name;
  r.step_ratio = 0.31;
  r.jaccards = {0.36, 0.4};
  r.tokens_per_s = 9;
  int n_missed = 0;
  for (const CompareGoal& g : compare_goals(r)) n_missed += !g.pass();
  EXPECT_EQ(n_missed, 4) << "rollback: 1.55 + 1.05";
  EXPECT_NE(plain_text(r).find("BAD  Jaccard of the top 5 0.38, wanted >= 0.45: the draft thinks"),
            std::string::npos)
      << plain_text(r);
  auto j = nlohmann::json::parse(json_text(r));
  EXPECT_EQ(j["positions"], 2);
  EXPECT_EQ(j["one_minus_tv"], 0.625);
  EXPECT_EQ(j["one_minus_tv_per_position"], (std::vector<double>{0.75, 0.5}));
  EXPECT_EQ(j["jaccard_per_position"], (std::vector<double>{0.36, 0.4}));
  EXPECT_EQ(j["goals"].size(), 4u);
  EXPECT_EQ(j["goals"][1]["id"], "jaccard");
  EXPECT_EQ(j["goals"][1]["pass"], false);
}

}  // namespace
}  // namespace pf
