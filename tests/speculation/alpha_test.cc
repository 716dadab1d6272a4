// Truth: the formula of SPECULATION section 3 worked by hand, source A's operating points, and a
// seeded simulation of its burst.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "speculation/acceptance_model.h"
#include "speculation/alpha_control.h"
#include "speculation/length_rules.h"
#include "speculation/utilisation.h"

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

// Source A gives two values, busy .42 and quiet .58, and neither the load nor the acceptance that
// it saw them at. Which ones give them by its formula: .08 below the base is 8 % of load above 60,
// and 60 % more for each unit that acceptance lacks; .08 above it is .08 / .6 that acceptance
// lacks, and more under load.
TEST(Alpha, ReproducesTheOperatingPointsOfSourceA) {
  std::printf("source A names no load and no acceptance for its .42 and .58; by its formula\n");
  std::printf("  acceptance   .42 at utilisation\n");
  for (double accept :
       {0.68, 0.63, 0.52, 0.41, 0.39}) {  // the rates that the source names, and between
    const double utilisation = 60 + 100 * (0.08 + 0.6 * std::max(0.0, 0.65 - accept));
    std::printf("     %.2f         %5.1f %%  (.415 to .425: %.1f to %.1f)\n", accept, utilisation,
                utilisation - 0.5, utilisation + 0.5);
    EXPECT_NEAR(alpha_at(utilisation, accept), 0.42, 1e-9) << accept;
  }
  std::printf("  utilisation  .58 at acceptance\n");
  for (double utilisation : {10.0, 60.0, 64.0, 68.0}) {
    const double accept = 0.65 - (0.08 + 0.01 * std::max(0.0, utilisation - 60)) / 0.6;
    std::printf("    %4.0f %%         %.3f    (.575 to .585: %.3f to %.3f)\n", utilisation, accept,
                accept + 0.005 / 0.6, accept - 0.005 / 0.6);
    EXPECT_NEAR(alpha_at(utilisation, accept), 0.58, 1e-9) << utilisation;
  }
}

// A server of source A's kind on simulated time: requests of 100 tokens arrive at random, each step
// drafts 5 tokens for every one that runs and takes twice as long at the knee as for one row. The
// controllers see its rows and what was kept, as the engine's do.
struct Hour {
  double utilisation = 0, rate = 0, alpha = 0;  // means over time
};
class HourOfSourceA {
 public:
  static constexpr int32_t kDrafted = 5, kTokens = 100;
  static constexpr double kKnee = 244,
                          kOneRow = 0.0083;  // rows; seconds (7B on an A100, estimate.h)

  // `load`: requests a second over those that the server answers when every step is at the knee.
  // `rate`: share of all drafted tokens that is kept.
  HourOfSourceA(double load, double rate) : keep_(chance_of(rate)) {
    double tokens = 1, reach = 1;
    for (int32_t k = 0; k < kDrafted; ++k) tokens += reach *= keep_;
    const double at_knee = kKnee / (kDrafted + 1) * tokens / kTokens / (2 * kOneRow);
    gap_ = std::exponential_distribution<double>(load * at_knee);
  }

  Hour run(double seconds) {
    Hour sum;
    double counted = 0, next = gap_(random_);
    for (double now = 0; now < seconds;) {
      if (left_.empty()) now = std::max(now, next);
      for (; next <= now; next += gap_(random_)) left_.push_back(kTokens);
      const double rows = static_cast<double>(left_.size()) * (kDrafted + 1);
      const double took = kOneRow * (1 + (rows - 1) / (kKnee - 1));
      step();
      alpha_.observe(utilisation_of(static_cast<int32_t>(rows), kKnee));
      now += took;
      if (now < 0.1 * seconds) continue;  // it fills
      counted += took;
      sum.utilisation += took * alpha_.utilisation();
      sum.rate += took * acceptance_.rate();
      sum.alpha += took * alpha_.alpha(acceptance_.rate());
    }
    return {sum.utilisation / counted, sum.rate / counted, sum.alpha / counted};
  }

 private:
  // Of a token whose ancestors are kept, when `rate` of all five are: (a + ... + a^5) / 5.
  static double chance_of(double rate) {
    double low = 0, high = 1;
    for (int i = 0; i < 50; ++i) {
      const double a = (low + high) / 2;
      double kept = 0, reach = 1;
      for (int32_t k = 0; k < kDrafted; ++k) kept += reach *= a;
      (kept < rate * kDrafted ? low : high) = a;
    }
    return low;
  }
  void step() {
    for (int32_t& left : left_) {
      int32_t kept = 0;
      while (kept < kDrafted && uniform_(random_) < keep_) ++kept;
      acceptance_.observe(0, 100, kDrafted, kept, &history_);
      left -= kept + 1;
    }
    std::erase_if(left_, [](int32_t left) { return left <= 0; });
  }

  const double keep_;
  std::mt19937_64 random_{5};
  std::uniform_real_distribution<double> uniform_;
  std::exponential_distribution<double> gap_;
  std::vector<int32_t> left_;  // tokens, of each request that runs
  DraftHistory history_;
  AcceptanceModel acceptance_{1};
  AlphaControl alpha_;
};

// The source's day: 500,000 calls for a server that can do 1,120,000 are 45 % of load. Its busy
// hour is taken for 1.75 times the mean, 78 %, with the tuned draft (.68); its quiet one for a
// fifth of it, 9 %, with texts half of which are those that the draft was tuned to (.63 and .39:
// .51). A step of utilisation u answers 2 u / (1 + u) of what it answers at the knee: u = x / (2 -
// x) at load x, 64 % and 5 % (of steps; a server that is idle makes none, so 9 % of load is a
// little more). The factors 1.75 and 1/5 and the mixture were chosen so that the source's values
// come out; the next lines show what others give.
TEST(Alpha, ABusyAndAQuietHourComeToTheValuesOfSourceA) {
  std::printf("an hour's load and acceptance -> utilisation, alpha (dynamic, w = 0.2)\n");
  auto hour = [](double load, double rate) {
    Hour h = HourOfSourceA(load, rate).run(400);
    std::printf("  %3.0f %%  %.2f  ->  %5.1f %%  %.3f\n", 100 * load, h.rate, h.utilisation,
                h.alpha);
    return h;
  };
  const Hour busy = hour(0.78, 0.68), quiet = hour(0.09, 0.51);
  EXPECT_NEAR(busy.utilisation, 100 * 0.78 / 1.22, 5);
  EXPECT_NEAR(busy.rate, 0.68, 0.01);
  EXPECT_NEAR(busy.alpha, 0.42, 0.01);
  EXPECT_LT(quiet.utilisation, 30);
  EXPECT_NEAR(quiet.rate, 0.51, 0.01);
  EXPECT_NEAR(quiet.alpha, 0.58, 0.01);
  double last = 1;
  for (double load : {0.45, 0.6, 0.7, 0.9}) {
    const Hour h = hour(load, 0.68);
    EXPECT_LE(h.alpha, last) << "who is busier keeps more";
    last = h.alpha;
  }
  EXPECT_LT(last, busy.alpha);
  EXPECT_NEAR(hour(0.09, 0.41).alpha, 0.6, 1e-6) << "capped: without load there is no reason";
}

TEST(Alpha, LoadIsRowsOverThoseAtTheKnee) {
  EXPECT_DOUBLE_EQ(utilisation_of(61, 244), 25);
  EXPECT_DOUBLE_EQ(utilisation_of(244, 244), 100);
  EXPECT_DOUBLE_EQ(utilisation_of(1000, 244), 100);
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

// An average with weight w of independent samples has w / (2 - w) of their variance: .333 of the
// swing with .2 and .816 with .8. A swing that is 38 % of without, as the source claims, needs
// w = 2 (.38^2) / (1 + .38^2) = .252.
TEST(Alpha, SmoothingNarrowsTheSwingOfABurst) {
  auto theory = [](double w) { return std::sqrt(w / (2 - w)); };
  const double none = swing(1);
  std::printf("swing of alpha after a burst 1,000 -> 3,000 requests/s\n");
  std::printf("  w = 1.00, %-11s  %.4f  100 %%\n", "none", none);
  auto row = [&](double w, const char* what) {
    const double part = swing(w) / none;
    std::printf("  w = %.2f, %-11s  %.4f  %3.0f %%  (of white noise %.0f %%)\n", w, what,
                part * none, 100 * part, 100 * theory(w));
    EXPECT_NEAR(part, theory(w), 0.03) << w;
    return part;
  };
  EXPECT_GT(row(0.8, "article"), 0.38) << "cannot narrow it by 62 %, as the article claims";
  EXPECT_NEAR(row(0.252, "its claim"), 0.38, 0.03);
  EXPECT_LE(row(AlphaOptions{}.smoothing, "default"), 0.38);
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

// Behind 100 samples of .7 come .95s: with n of them the last hundred's mean is .7 + .0025 n, above
// .8 from the 41st on.
TEST(LengthRules, WindowLooksAtTheLastHundred) {
  WindowLength window;
  for (int i = 0; i < 500; ++i) window.observe(0.7);
  for (int i = 0; i < 40; ++i) window.observe(0.9499);
  EXPECT_EQ(window.length(), 5);
  window.observe(0.9499);
  EXPECT_EQ(window.length(), 6);
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
