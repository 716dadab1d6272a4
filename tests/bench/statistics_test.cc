// Truth: level 0, numbers small enough to work out by hand.
#include "bench/statistics.h"

#include <gtest/gtest.h>

#include "bench/measure.h"

namespace pf {
namespace {

TEST(Spread, InterpolatesBetweenRanks) {
  // Sorted 1 2 3 4: ranks 0.75, 1.5, 2.25 of 0..3.
  Spread s = spread_of({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(s.q1, 1.75);
  EXPECT_DOUBLE_EQ(s.median, 2.5);
  EXPECT_DOUBLE_EQ(s.q3, 3.25);
  EXPECT_DOUBLE_EQ(s.iqr(), 1.5);
  EXPECT_EQ(s.n, 4);
}

TEST(Spread, OfOddManyOfOneAndOfNone) {
  Spread five = spread_of({50, 10, 40, 20, 30});  // ranks 1, 2, 3
  EXPECT_DOUBLE_EQ(five.q1, 20);
  EXPECT_DOUBLE_EQ(five.median, 30);
  EXPECT_DOUBLE_EQ(five.q3, 40);
  Spread one = spread_of({7});
  EXPECT_DOUBLE_EQ(one.q1, 7);
  EXPECT_DOUBLE_EQ(one.median, 7);
  EXPECT_DOUBLE_EQ(one.q3, 7);
  EXPECT_EQ(spread_of({}).n, 0);
}

TEST(Spread, OneWildValueDoesNotMoveTheMedian) {
  EXPECT_DOUBLE_EQ(spread_of({10, 11, 12, 13, 1e9}).median, 12);
}

TEST(Steady, UpToATenth) {
  EXPECT_TRUE(is_steady(std::vector<double>{100, 109.9}));
  EXPECT_TRUE(is_steady(std::vector<double>{109.9, 100}));
  EXPECT_FALSE(is_steady(std::vector<double>{100, 110.2}));
  EXPECT_FALSE(is_steady(std::vector<double>{100, 105, 111}));  // each step is small, all are not
}

TEST(ShareOfProbe, TakesTheProbesOnBothSidesAndCountsWhatItDrops) {
  const std::vector<Round> rounds = {
      {{100, 104}, {51}},  // 51 / 102 = 0.5
      {{100, 100}, {60}},  // 0.6
      {{100, 100}, {70}},  // 0.7
      {{100, 150}, {90}},  // the probe moved by half
  };
  Kept kept = share_of_probe(rounds, 0);
  EXPECT_EQ(kept.spread.n, 3);
  EXPECT_EQ(kept.n_dropped, 1);
  EXPECT_DOUBLE_EQ(kept.spread.median, 0.6);
  EXPECT_DOUBLE_EQ(rate_of_subject(rounds, 0).median, 60);
}

TEST(ShareOfProbe, OfTheSecondSubjectLooksAtItsOwnProbes) {
  // The first probe moved; those around subject 1 did not.
  const std::vector<Round> rounds = {{{200, 100, 100}, {1, 80}}};
  EXPECT_EQ(share_of_probe(rounds, 0).n_dropped, 1);
  EXPECT_DOUBLE_EQ(share_of_probe(rounds, 1).spread.median, 0.8);
}

TEST(RatioOfSubjects, NeedsAllProbesFromOneToTheOtherSteady) {
  const std::vector<Round> rounds = {
      {{100, 101, 102}, {30, 20}},  // 1.5
      {{100, 100, 100}, {40, 20}},  // 2
      {{100, 106, 112}, {90, 10}},  // 12 % from end to end
  };
  Kept kept = ratio_of_subjects(rounds, 0, 1);
  EXPECT_EQ(kept.spread.n, 2);
  EXPECT_EQ(kept.n_dropped, 1);
  EXPECT_DOUBLE_EQ(kept.spread.median, 1.75);
  EXPECT_DOUBLE_EQ(ratio_of_subjects(rounds, 1, 0).spread.q1, 0.5 + 0.25 * (20.0 / 30 - 0.5));
}

TEST(RateOfProbe, IsOverAllRounds) {
  EXPECT_DOUBLE_EQ(
      rate_of_probe(std::vector<Round>{{{1, 2}, {9}}, {{2, 4}, {9}}, {{4, 9}, {9}}}).median, 3);
}

TEST(GrowthExponent, OfPowersIsThePower) {
  const std::vector<double> n = {1, 2, 4, 8};
  EXPECT_NEAR(growth_exponent(n, std::vector<double>{3, 6, 12, 24}), 1, 1e-12);
  EXPECT_NEAR(growth_exponent(n, std::vector<double>{5, 20, 80, 320}), 2, 1e-12);
  EXPECT_NEAR(growth_exponent(n, std::vector<double>{7, 7, 7, 7}), 0, 1e-12);
}

TEST(GrowthExponent, IsTheLeastSquaresLine) {
  // log2: x = 0, 1, 2 and y = 0, 2, 1; slope = sum (x - 1)(y - 1) / 2 = (1 + 0 + 0) / 2.
  EXPECT_NEAR(growth_exponent(std::vector<double>{1, 2, 4}, std::vector<double>{1, 4, 2}), 0.5,
              1e-12);
}

TEST(Alternate, ProbesStandOnBothSidesOfEverySubject) {
  // Probe 'p' and subjects 'a', 'b': one warming slice of each, then p (a p b p) per round.
  std::string order;
  auto load = [&](char c) {
    return Load([&order, c] {
      order += c;
      return 1.0;
    });
  };
  ThreadPool pool(1);
  std::vector<Load> subjects = {load('a'), load('b')};
  std::vector<Round> rounds = alternate({2, 0}, pool, load('p'), subjects);
  ASSERT_GE(rounds.size(), 2u);
  ASSERT_LE(rounds.size(), 4u);  // at most twice as many as asked for, however unsteady
  std::string expected = "pabp";
  for (const Round& r : rounds) {
    EXPECT_EQ(r.probes.size(), 3u);
    EXPECT_EQ(r.subjects.size(), 2u);
    expected += "apbp";
  }
  EXPECT_EQ(order, expected);
}

TEST(RateOfSlice, RunsPiecesUntilTheSliceIsOver) {
  int n = 0;
  double rate = rate_of_slice(
      [&] {
        ++n;
        return 10.0;
      },
      0.001);
  EXPECT_GT(n, 1);
  EXPECT_GT(rate, 0);
  EXPECT_LE(rate, 10.0 * n / 0.001);  // the slice lasted at least a millisecond
}

}  // namespace
}  // namespace pf
