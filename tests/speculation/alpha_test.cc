// Truth: the formula of SPECULATION section 3 worked by hand, source A's operating points, and a
// seeded simulation of its burst.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "speculation/alpha_control.h"
#include "speculation/length_rules.h"

namespace pf {
namespace {

double alpha_at(double utilisation, double accept_rate) {
  AlphaControl control;
  control.observe(utilisation);
  return control.alpha(accept_rate);
}

TEST(Alpha, IsTheFormulaWorkedByHand) {
  EXPECT_DOUBLE_EQ(alpha_at(50, 0.65), 0.5);
  EXPECT_NEAR(alpha_at(65, 0.65), 0.45, 1e-12);  // 5 % above 60
  EXPECT_NEAR(alpha_at(50, 0.60), 0.53, 1e-12);  // .05 below .65
  EXPECT_NEAR(alpha_at(70, 0.55), 0.5 - 0.10 + 0.06, 1e-12);
  EXPECT_DOUBLE_EQ(alpha_at(100, 0.9), 0.3) << "clamped below";
  EXPECT_DOUBLE_EQ(alpha_at(50, 0.0), 0.8) << "clamped above";
}

TEST(Alpha, IsCappedAtLowLoadOnly) {
  EXPECT_DOUBLE_EQ(alpha_at(29, 0.3), 0.6);
  EXPECT_NEAR(alpha_at(30, 0.3), 0.71, 1e-12);
}

// Busy hours 0.42: 8 % above the knee's 60 with a draft that fits. Quiet hours 0.58: no load, and a
// draft whose acceptance has fallen to .517.
TEST(Alpha, ReproducesTheOperatingPointsOfSourceA) {
  EXPECT_NEAR(alpha_at(68, 0.68), 0.42, 1e-9);
  EXPECT_NEAR(alpha_at(20, 0.65 - 0.08 / 0.6), 0.58, 1e-9);
}

TEST(Alpha, SmoothsUtilisationWithTheWeightOfTheNewest) {
  AlphaControl control({.smoothing = 0.2});
  control.observe(50);
  EXPECT_DOUBLE_EQ(control.utilisation(), 50) << "the first sample stands for itself";
  control.observe(100);
  EXPECT_DOUBLE_EQ(control.utilisation(), 60);
  control.observe(100);
  EXPECT_DOUBLE_EQ(control.utilisation(), 68);
}

// Poisson arrivals, 1,000 a second, 3,000 between the seconds 10 and 30; the controller looks every
// 10 ms. A request keeps one row for one look; 90 % of the knee's 33.3 rows at the burst's mean.
// Swing: standard deviation of the unclamped alpha around that of the same controller under the
// mean load (which is the trend), inside the burst, where the load term is active.
double swing(double smoothing) {
  std::mt19937_64 random(7);
  AlphaControl control({.smoothing = smoothing}), trend({.smoothing = smoothing});
  double sum = 0;
  int n = 0;
  for (int tick = 0; tick < 4000; ++tick) {
    bool burst = tick >= 1000 && tick < 3000;
    double mean = (burst ? 3000 : 1000) * 0.01;
    double rows = std::poisson_distribution<int>(mean)(random);
    control.observe(100 * rows / (3000 * 0.01 / 0.9));
    trend.observe(100 * mean / (3000 * 0.01 / 0.9));
    if (!burst || tick < 1050) continue;
    double d = control.unclamped(0.7) - trend.unclamped(0.7);
    sum += d * d;
    ++n;
  }
  return std::sqrt(sum / n);
}

TEST(Alpha, SmoothingNarrowsTheSwingOfABurst) {
  double none = swing(1), with_default = swing(AlphaOptions{}.smoothing), literal = swing(0.8);
  std::printf("swing of alpha after a burst 1,000 -> 3,000 requests/s\n");
  std::printf("  w = 1.0 (none)    %.4f  100 %%\n", none);
  std::printf("  w = 0.8 (article) %.4f  %3.0f %%\n", literal, 100 * literal / none);
  std::printf("  w = 0.2 (default) %.4f  %3.0f %%\n", with_default, 100 * with_default / none);
  EXPECT_LE(with_default, 0.38 * none);
  EXPECT_GT(literal, 0.7 * none) << "0.8 cannot narrow it by 62 %, as the article claims";
}

TEST(LengthRules, WindowMovesByOneOnceTenSamplesSaySo) {
  WindowLength window;
  for (int i = 0; i < 9; ++i) window.observe(1);
  EXPECT_EQ(window.length(), 5);
  window.observe(1);
  EXPECT_EQ(window.length(), 6);
  for (int i = 0; i < 9; ++i) window.observe(0.7);
  EXPECT_EQ(window.length(), 6) << "a new length is judged by its own samples";
  for (int i = 0; i < 100; ++i) window.observe(0.7);
  EXPECT_EQ(window.length(), 6) << "inside the band";
  for (int i = 0; i < 1000; ++i) window.observe(0);
  EXPECT_EQ(window.length(), 1);
  for (int i = 0; i < 1000; ++i) window.observe(1);
  EXPECT_EQ(window.length(), 10);
}

TEST(LengthRules, RateMovesARealNumberByTenPercent) {
  RateLength rate;
  EXPECT_EQ(rate.length(), 5);
  rate.observe(0.5);  // 4.5
  EXPECT_EQ(rate.length(), 4);
  rate.observe(0.7);
  EXPECT_EQ(rate.length(), 4) << "inside the band";
  rate.observe(0.9);  // 4.95
  EXPECT_EQ(rate.length(), 4);
  rate.observe(0.9);  // at most 5
  EXPECT_EQ(rate.length(), 5);
  for (int i = 0; i < 100; ++i) rate.observe(0);
  EXPECT_EQ(rate.length(), 1);
}

}  // namespace
}  // namespace pf
