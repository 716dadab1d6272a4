// Truth: SOURCES.md, C, for what its table claims; bytes and rates of Qwen2.5-7B on an A100 worked
// out by hand; the formula of SPECULATION section 4.
#include "bench/source_c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "bench/speculation_figures.h"

namespace pf {
namespace {

class PaperTable : public testing::Test {
 protected:
  static void SetUpTestSuite() { paper_ = new SourceC(*SourceC::estimate()); }
  static void TearDownTestSuite() { delete paper_; }
  static const SourceC& paper() { return *paper_; }
  static size_t find(const std::string& what, int k) {
    for (size_t i = 0; i < sweep_claims().size(); ++i)
      if (sweep_claims()[i].what == what && sweep_claims()[i].k == k) return i;
    ADD_FAILURE() << what << " is no row";
    return 0;
  }
  static inline SourceC* paper_ = nullptr;
};

TEST(SweepClaims, AreTheSourcesFigures) {
  std::vector<double> speedups;
  for (const SweepClaim& claim : sweep_claims())
    speedups.push_back(std::round(100 * claimed_speedup(claim)) / 100);
  EXPECT_THAT(speedups, testing::ElementsAre(1, 2.32, 2.5, 2.06, 2.86, 2.72));
}

// 28 layers of 233,046,016 weights and a head of 152,064 x 3,584, 2 bytes each: 14.1406e9; of 1,024
// tokens 57,344 bytes each: 0.0587e9. At .88 of 2,039 GB/s that is 7.914 ms; 28 x 5 launches and
// the judge have 1.2 us between them, 0.18 ms, and the host takes 20.5 us.
TEST_F(PaperTable, APlainStepIsTheWeightsOverTheBandwidth) {
  const double least = (14.1406e9 + 0.0587e9) / (0.88 * 2039e9);
  const double plain_s = paper().costs()[0].plain_s;
  EXPECT_GT(plain_s, least);
  EXPECT_NEAR(plain_s, least + 0.18e-3 + 20.5e-6, 0.15e-3);  // and small kernels' least of 2 us
  EXPECT_LT(25.3 * plain_s, 0.25) << "the source's plain figure is not the roofline's";
}

TEST_F(PaperTable, VerifyingAChainCostsHardlyMoreThanAToken) {
  for (const ClaimCosts& c : paper().costs()) {
    EXPECT_GE(c.v(), 1);
    EXPECT_LT(c.v(), 1.05);
  }
}

TEST_F(PaperTable, ALargerDraftIsDearerAndSharedKeysCostNoPrompt) {
  const auto& costs = paper().costs();
  const ClaimCosts &small = costs[find("0.5B draft", 5)], &large = costs[find("1.5B draft", 5)],
                   &shared = costs[find("0.5B draft, KV shared", 5)];
  EXPECT_GT(large.draft_s, 1.2 * small.draft_s);
  EXPECT_GT(large.draft_prompt_s, 2 * small.draft_prompt_s);  // FLOPs of 1.3e9 and .36e9 weights
  EXPECT_LE(shared.draft_s, small.draft_s);
  EXPECT_EQ(shared.draft_prompt_s, 0);
}

// One acceptance explains the rows of K = 5 and K = 8 within .05.
TEST_F(PaperTable, TheRowsOfTheSmallDraftAgreeWithEachOther) {
  EXPECT_NEAR(paper().needs(find("0.5B draft", 5)), paper().needs(find("0.5B draft", 8)), 0.05);
}

TEST_F(PaperTable, WhatAClaimNeedsGivesTheClaim) {
  for (size_t i = 1; i < sweep_claims().size(); ++i) {
    const SweepClaim& claim = sweep_claims()[i];
    const ClaimCosts& costs = paper().costs()[i];
    const double a = paper().needs(i);
    // E tokens in the time of a step, over one in that of a plain one.
    double tokens = 1, reach = 1;
    for (int k = 0; k < claim.k; ++k) tokens += reach *= a;
    EXPECT_NEAR(tokens * costs.plain_s / (costs.verify_s + costs.draft_s), claimed_speedup(claim),
                1e-9)
        << claim.what;
  }
}

TEST_F(PaperTable, TheBestLengthGrowsWithAcceptance) {
  EXPECT_EQ(paper().best_k(0), 1);
  EXPECT_EQ(paper().best_k(1), SourceC::kMostDrafted);
  for (double a : {0.3, 0.6, 0.9})
    for (int k = 1; k <= SourceC::kMostDrafted; ++k)
      EXPECT_LE(paper().speedup(a, k), paper().speedup(a, paper().best_k(a)));
}

// Every row twice, by acceptances that are named, and a cause for each of them.
TEST_F(PaperTable, TheReportNamesWhatItAssumesAndWhy) {
  Report report("test");
  paper().add_to(&report);
  const Json json = report.json();
  const Json& rows = json["sections"]["source C on an A100-80, on paper"];
  ASSERT_EQ(rows.size(), 1 + 2 * (sweep_claims().size() - 1));
  EXPECT_TRUE(rows[0]["acceptance"].is_null());
  std::set<std::string> origins;
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_TRUE(rows[i]["acceptance"].is_number());
    origins.insert(rows[i]["which is"].get<std::string>());
    EXPECT_NEAR(rows[i]["tok/s"].get<double>(),
                rows[i]["x"].get<double>() / paper().costs()[0].plain_s, 1e-6);
  }
  EXPECT_EQ(origins.size(), 2u);
  for (const Json& line : json["sections"]["source C, why"]) {
    const std::string cause = line["cause"];
    EXPECT_THAT(cause, testing::Not(testing::HasSubstr("nan")));
    EXPECT_LT(cause.size(), 399u) << "cut";
  }
}

}  // namespace
}  // namespace pf
