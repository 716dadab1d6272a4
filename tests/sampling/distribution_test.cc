// Truth: hand-worked numbers, and a definition of truncated sampling by sorting in float64.
#include "sampling/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace pf {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Temperature, min-p, top-k, top-p by their definitions.
std::map<int, double> define(const SamplingParams& s, const std::vector<float>& logits) {
  std::vector<std::pair<double, int>> rows;  // (-x, token): sorts by falling x, lower token first
  double max = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < logits.size(); ++i)
    rows.push_back({-(logits[i] - max) / s.temperature, static_cast<int>(i)});
  std::sort(rows.begin(), rows.end());
  std::erase_if(rows, [&](auto& r) { return s.min_p > 0 && std::exp(-r.first) < s.min_p; });
  if (s.top_k > 0 && rows.size() > static_cast<size_t>(s.top_k)) rows.resize(s.top_k);
  double total = 0, mass = 0, kept = 0;
  for (auto& r : rows) total += std::exp(-r.first);
  std::map<int, double> p;
  for (auto& r : rows) {
    if (s.top_p < 1 && mass >= s.top_p * total) break;
    mass += p[r.second] = std::exp(-r.first);
  }
  for (auto& [t, v] : p) kept += v;
  for (auto& [t, v] : p) v /= kept;
  return p;
}

TEST(Rules, PenaltiesBiasAndBansByHand) {
  SamplingParams s;
  s.repetition_penalty = 2;
  s.presence_penalty = 0.5;
  s.frequency_penalty = 0.25;
  s.logit_bias = {{3, 1.5f}, {4, kBannedBias}};
  TokenCounts counts;
  counts.add_prompt(std::vector<int32_t>{0, 1});
  counts.add_output(1);
  counts.add_output(1);
  counts.add_output(2);
  std::vector<float> logits = {4, -4, 4, 1, 1, 7};
  std::vector<int32_t> banned = {5};
  apply_rules({&s, &counts, banned}, logits);
  // 0: prompt only, 4 / 2. 1: -4 * 2 - 2 * .25 - .5. 2: 4 / 2 - .25 - .5. 3: 1 + 1.5.
  EXPECT_EQ(logits, (std::vector<float>{2, -9, 1.25, 2.5, -kInf, -kInf}));
}

TEST(Rules, CountsGoBackToWhatTheyWere) {
  TokenCounts counts;
  counts.add_prompt(std::vector<int32_t>{7});
  counts.add_output(7);
  counts.add_output(8);
  counts.remove_output(8);
  counts.remove_output(7);
  ASSERT_EQ(counts.counts().size(), 1u);
  EXPECT_EQ(counts.counts().at(7).output, 0);
  EXPECT_TRUE(counts.counts().at(7).prompt);
}

TEST(Distribution, MatchesTheDefinitionForEveryTruncation) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 400; ++round) {
    std::vector<float> logits(1 + round % 300);
    for (float& l : logits) l = normal(rng);
    SamplingParams s;
    s.temperature = 0.3f + 0.1f * static_cast<float>(round % 17);
    if (round & 1) s.top_k = 1 + round % 40;
    if (round & 2) s.top_p = 0.05f + 0.09f * static_cast<float>(round % 10);
    if (round & 4) s.min_p = 0.02f * static_cast<float>(1 + round % 5);
    auto want = define(s, logits);
    Distribution d;
    make_distribution(s, logits, &d);
    double sum = 0;
    for (size_t t = 0; t < logits.size(); ++t) {
      double w = want.contains(static_cast<int>(t)) ? want[static_cast<int>(t)] : 0;
      // exp is good to 2e-7 and its argument is rounded: 1e-5 relative covers |x| <= 87.
      ASSERT_NEAR(d.at(static_cast<int32_t>(t)), w, 1e-5 * w + 1e-12) << "round " << round;
      sum += d.at(static_cast<int32_t>(t));
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST(Distribution, TiesAtABorderKeepTheLowerToken) {
  SamplingParams s;
  s.temperature = 1;
  s.top_k = 2;
  Distribution d;
  make_distribution(s, std::vector<float>{1, 2, 1, 1}, &d);
  EXPECT_EQ(d.ids, (std::vector<int32_t>{0, 1}));
  s.top_k = 0;
  s.top_p = 0.5;  // four equal ones: two reach one half
  make_distribution(s, std::vector<float>{3, 3, 3, 3}, &d);
  EXPECT_EQ(d.ids, (std::vector<int32_t>{0, 1}));
}

TEST(Distribution, GreedyIsOneHotOfTheFirstMaximum) {
  Distribution d;
  make_distribution({}, std::vector<float>{1, 5, 5, 2}, &d);
  EXPECT_EQ(d.ids, std::vector<int32_t>{1});
  EXPECT_EQ(d.p, std::vector<float>{1});
}

TEST(Distribution, IsEmptyWhenEverythingIsBanned) {
  Distribution d;
  SamplingParams s;
  s.temperature = 1;
  make_distribution(s, std::vector<float>{-kInf, -kInf}, &d);
  EXPECT_TRUE(d.p.empty());
}

TEST(DraftDistribution, IsTheDistributionOverItsTokens) {
  SamplingParams s;
  s.temperature = 0.7f;
  s.top_p = 0.9f;
  s.presence_penalty = 1;
  s.logit_bias = {{30, 2.0f}};
  TokenCounts counts;
  counts.add_output(10);
  std::vector<int32_t> banned = {40};
  std::vector<TokenProbability> top = {{20, 1.0f}, {10, 3.0f}, {40, 9.0f}, {30, 0.5f}};
  std::vector<TokenProbability> q;
  make_draft_distribution({&s, &counts, banned}, top, &q);
  // The same numbers as a small vocabulary: token 10 -> 3 - 1, 20 -> 1, 30 -> 2.5.
  auto want = define(s, {2.0f, 1.0f, 2.5f});
  ASSERT_EQ(q.size(), want.size());
  EXPECT_EQ(q[0].token, 30);
  EXPECT_NEAR(q[0].probability, want[2], 1e-6);
  EXPECT_EQ(q[1].token, 10);
  EXPECT_NEAR(q[1].probability, want[0], 1e-6);
}

TEST(AllFinite, FindsEveryBadValueAtEveryPlace) {
  for (size_t n : {1u, 15u, 16u, 17u, 100u})
    for (size_t at = 0; at < n; ++at)
      for (float bad : {kInf, -kInf, std::nanf("")}) {
        std::vector<float> logits(n, 1e30f);
        ASSERT_TRUE(all_finite(logits));
        logits[at] = bad;
        ASSERT_FALSE(all_finite(logits)) << n << " " << at;
      }
}

TEST(Argmax, FindsTheFirstMaximum) {
  for (size_t n : {1u, 16u, 33u})
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> x(n, -2);
      x[at] = -1;
      x[n - 1] = -1;
      EXPECT_EQ(argmax(x), static_cast<int32_t>(at));
    }
}

TEST(Logprobs, MatchLogSoftmaxInDouble) {
  std::vector<float> logits = {0.5f, -1, 3, 3, -kInf};
  double total = std::exp(0.5) + std::exp(-1.0) + 2 * std::exp(3.0);
  TokenLogprob l = logprobs_of(logits, 0, 3);
  EXPECT_NEAR(l.logprob, 0.5 - std::log(total), 1e-6);
  ASSERT_EQ(l.top.size(), 3u);
  EXPECT_EQ(l.top[0].token, 2);
  EXPECT_EQ(l.top[1].token, 3);
  EXPECT_EQ(l.top[2].token, 0);
  EXPECT_NEAR(l.top[0].logprob, 3 - std::log(total), 1e-6);
}

TEST(Draw, InvertsTheCumulativeDistribution) {
  Distribution d{{}, {0.25f, 0, 0.5f, 0.25f}};
  EXPECT_EQ(draw(d, 0.2), 0);
  EXPECT_EQ(draw(d, 0.26), 2);
  EXPECT_EQ(draw(d, 0.74), 2);
  EXPECT_EQ(draw(d, 0.76), 3);
  EXPECT_EQ(draw(d, 1 - 1e-12), 3);
}

TEST(DrawCoupled, SkippingHopelessTokensChangesNothing) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 6);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(500);
    for (float& l : logits) l = normal(rng);
    SamplingParams s;
    s.temperature = 1;
    Distribution d;
    make_distribution(s, logits, &d);
    int32_t best = -1;
    float score = -kInf;
    for (int32_t t = 0; t < 500; ++t) {
      if (d.at(t) < 1e-37f) continue;
      float v = log_positive(d.at(t)) + gumbel({9, 2}, round, t);
      if (v > score) score = v, best = t;
    }
    EXPECT_EQ(draw_coupled(d, {9, 2}, round), best);
  }
}

}  // namespace
}  // namespace pf
