// Truth: src/sampling/distribution.cc to the bit of every p, the definition of truncated sampling
// by sorting in float64, and log-softmax in float64.
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/dtype.h"
#include "kernels/budget.h"
#include "kernels/sampling_case.h"
#include "ptxvm/ptxvm.h"

namespace pf::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_row(uint64_t seed, int64_t V, float spread, float grid = 0) {
  std::mt19937_64 rng(seed);
  std::vector<float> row(static_cast<size_t>(V));
  for (float& l : row) {
    l = std::normal_distribution<float>(0, spread)(rng);
    if (grid > 0) l = std::round(l / grid) * grid;
  }
  return row;
}

SamplingCase case_of(SamplingParams params, std::vector<float> logits) {
  SamplingCase c;
  c.params = params;
  c.logits = std::move(logits);
  c.key = {99, 1};
  c.position = 41;
  return c;
}

// p of a token by the closed form of kernels/sample.h.
float p_of(const RowLaw& law, float logit, int32_t token) {
  if (law.scale == 0) return token == law.argmax ? 1.0f : 0.0f;
  const float x = (logit - law.max) * law.scale;
  const bool kept = x > law.cut_x || (x == law.cut_x && token <= law.cut_token);
  return kept ? exp_nonpositive(x) * law.norm : 0.0f;
}

// Temperature, min-p, top-k, top-p by their definitions.
std::map<int, double> define(const SamplingParams& s, const std::vector<float>& logits) {
  std::vector<std::pair<double, int>> rows;  // (-x, token): sorts by falling x, lower token first
  const double max = *std::max_element(logits.begin(), logits.end());
  for (size_t i = 0; i < logits.size(); ++i)
    rows.push_back({-(logits[i] - max) / s.temperature, static_cast<int>(i)});
  std::sort(rows.begin(), rows.end());
  std::erase_if(rows, [&](auto& r) { return s.min_p > 0 && std::exp(-r.first) < s.min_p; });
  if (s.top_k > 0 && rows.size() > static_cast<size_t>(s.top_k))
    rows.resize(static_cast<size_t>(s.top_k));
  double total = 0, mass = 0, kept = 0;
  for (auto& r : rows) total += std::exp(-r.first);
  std::map<int, double> p;
  for (auto& r : rows) {
    if (s.top_p < 1 && mass >= static_cast<double>(s.top_p) * total) break;
    mass += p[r.second] = std::exp(-r.first);
  }
  for (auto& [t, v] : p) kept += v;
  for (auto& [t, v] : p) v /= kept;
  return p;
}

std::vector<SamplingParams> all_truncations(int64_t V) {
  std::vector<SamplingParams> all;
  for (int i = 0; i < 8; ++i) {
    SamplingParams s;
    s.temperature = 0.4f + 0.2f * static_cast<float>(i);
    if (i & 1) s.top_k = static_cast<int32_t>(1 + V / (i + 1));
    if (i & 2) s.top_p = 0.3f + 0.1f * static_cast<float>(i);
    if (i & 4) s.min_p = 0.01f;
    all.push_back(s);
  }
  all.push_back({});  // greedy
  return all;
}

void expect_host_law(const SamplingCase& c, const Judged& judged, size_t b, int64_t V) {
  SCOPED_TRACE("V " + std::to_string(V) + " case " + std::to_string(b));
  const RowLaw& law = judged.laws[b];
  Distribution d;
  make_distribution(c.params, c.logits, &d);
  ASSERT_EQ(law.state, RowState::kGood);
  EXPECT_EQ(law.argmax, argmax(c.logits));
  for (int32_t t = 0; t < V; ++t)
    ASSERT_EQ(p_of(law, c.logits[static_cast<size_t>(t)], t), d.at(t)) << "token " << t;
  if (c.policy.rule == Acceptance::kCoupled) {
    EXPECT_EQ(law.winner, draw_coupled(d, c.key, c.position));
  }
}

// The first of all tokens by falling logit, the lower one of equals first.
constexpr int kTop = 100;
void expect_likeliest(const std::vector<float>& logits, const TokenValue* top, int64_t V) {
  std::vector<int32_t> order;
  for (int32_t t = 0; t < V; ++t) order.push_back(t);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  for (int64_t i = 0; i < std::min<int64_t>(kTop, V); ++i)
    ASSERT_EQ(top[i].token, order[static_cast<size_t>(i)]) << "place " << i;
}

class Laws : public testing::TestWithParam<std::pair<int, uint32_t>> {};  // V, schedule

TEST_P(Laws, EveryProbabilityIsTheHosts) {
  const auto [V, schedule] = GetParam();
  ptxvm::settings().seed = schedule;
  std::vector<SamplingCase> cases;
  // Apart; many equal ones; so close that a bin of the first round holds many; so far that p is 0.
  for (auto [spread, grid] : {std::pair{3.0f, 0.0f}, {3.0f, 1.0f}, {0.2f, 0.0f}, {60.0f, 0.0f}})
    for (const SamplingParams& s : all_truncations(V)) {
      cases.push_back(case_of(s, random_row(cases.size() + 1, V, spread, grid)));
      cases.back().key.seed += cases.size();
      cases.back().position += 7 * static_cast<int64_t>(cases.size());
      cases.back().policy.rule = cases.size() % 2 ? Acceptance::kCoupled : Acceptance::kTypical;
    }
  for (SamplingCase& c : cases) c.n_top = kTop;
  const Judged judged = judge_on_device(cases, V, kTop);
  for (size_t b = 0; b < cases.size(); ++b) {
    expect_host_law(cases[b], judged, b, V);
    expect_likeliest(cases[b].logits, judged.top.data() + b * kTop, V);
  }
  ptxvm::settings().seed = 0;
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

// One, odd, around a warp, a block, and where the wide block begins.
INSTANTIATE_TEST_SUITE_P(Sizes, Laws,
                         testing::Values(std::pair{1, 0u}, std::pair{2, 1u}, std::pair{31, 2u},
                                         std::pair{33, 3u}, std::pair{127, 4u}, std::pair{129, 5u},
                                         std::pair{1025, 6u}, std::pair{4096, 7u},
                                         std::pair{4097, 8u}));

TEST(Sample, MatchesTheDefinitionForEveryTruncation) {
  const int64_t V = 300;
  std::vector<SamplingCase> cases;
  for (const SamplingParams& s : all_truncations(V))
    if (!s.greedy()) cases.push_back(case_of(s, random_row(cases.size() + 50, V, 2)));
  const Judged judged = judge_on_device(cases, V);
  for (size_t b = 0; b < cases.size(); ++b) {
    auto want = define(cases[b].params, cases[b].logits);
    for (int32_t t = 0; t < V; ++t) {
      const double w = want.contains(t) ? want[t] : 0;
      // exp is good to 2e-7 and its argument is rounded: 1e-5 relative covers |x| <= 87.
      ASSERT_NEAR(p_of(judged.laws[b], cases[b].logits[static_cast<size_t>(t)], t), w,
                  1e-5 * w + 1e-12);
    }
  }
}

TEST(Sample, TheEntropyIsThatOfP) {
  const int64_t V = 300;
  std::vector<SamplingCase> cases;
  for (const SamplingParams& s : all_truncations(V))
    if (!s.greedy()) {
      cases.push_back(case_of(s, random_row(cases.size() + 70, V, 2)));
      cases.back().policy.rule = Acceptance::kTypical;
    }
  const Judged judged = judge_on_device(cases, V);
  for (size_t b = 0; b < cases.size(); ++b) {
    double h = 0;
    for (auto& [t, v] : define(cases[b].params, cases[b].logits)) h -= v * std::log(v);
    // x has 2^-24 of |x| <= 87 as error, p 1e-5 relative; both weigh p log p, which sums to h.
    EXPECT_NEAR(judged.laws[b].entropy, h, 1e-5 * (h + 1));
  }
}

TEST(Sample, TiesAtABorderKeepTheLowerToken) {
  SamplingParams k, p, both;
  k.temperature = p.temperature = both.temperature = 1;
  k.top_k = 2;
  p.top_p = 0.5f;  // four equal ones: two reach one half
  both.top_k = 3;  // 0, 1, 2; then two of three equal ones reach 0.6
  both.top_p = 0.6f;
  std::vector<SamplingCase> cases = {case_of(k, {1, 2, 1, 1}), case_of(p, {3, 3, 3, 3}),
                                     case_of(both, {3, 3, 3, 3})};
  const Judged judged = judge_on_device(cases, 4);
  for (size_t b = 0; b < 3; ++b)
    for (int32_t t = 0; t < 4; ++t)
      EXPECT_EQ(p_of(judged.laws[b], cases[b].logits[static_cast<size_t>(t)], t) > 0, t < 2)
          << b << " " << t;
}

TEST(Sample, TheLowestTokenWinsATieAndZeroHasNoSign) {
  std::vector<SamplingCase> cases = {case_of({}, {-2, -0.0f, 0.0f, -0.0f}),
                                     case_of({}, {5, 7, 7, 7})};
  const Judged judged = judge_on_device(cases, 4);
  EXPECT_EQ(judged.laws[0].argmax, 1);
  EXPECT_EQ(judged.laws[1].argmax, 1);
}

TEST(Sample, ANonFiniteLogitAndABannedVocabularyAreSeen) {
  std::vector<SamplingCase> cases;
  for (float bad : {kInf, -kInf, std::nanf("")})
    for (size_t at : {size_t{0}, size_t{32}, size_t{129}}) {
      cases.push_back(case_of({}, random_row(3, 130, 2)));
      cases.back().logits[at] = bad;
    }
  SamplingParams ban;
  for (int32_t t = 0; t < 130; ++t) ban.logit_bias.push_back({t, pf::kBannedBias});
  cases.push_back(case_of(ban, random_row(4, 130, 2)));
  const Judged judged = judge_on_device(cases, 130);
  for (size_t b = 0; b + 1 < cases.size(); ++b) {
    EXPECT_EQ(judged.laws[b].state, RowState::kNotFinite) << b;
    EXPECT_FALSE(judged.accepted[b].finite);
    EXPECT_EQ(judged.accepted[b].n_tokens, 0);
  }
  EXPECT_EQ(judged.laws.back().state, RowState::kEmpty);
  EXPECT_FALSE(judged.accepted.back().finite);
}

TEST(Sample, RulesByHand) {
  SamplingParams s;
  s.repetition_penalty = 2;
  s.presence_penalty = 0.5;
  s.frequency_penalty = 0.25;
  s.logit_bias = {{3, 1.5f}, {4, pf::kBannedBias}};
  std::vector<SamplingCase> cases = {case_of(s, {4, -4, 4, 1, 1, 7})};
  SamplingCase& c = cases[0];
  c.counts.emplace();
  c.counts->add_prompt(std::vector<int32_t>{0, 1});
  for (int32_t t : {1, 1, 2}) c.counts->add_output(t);
  c.stop.end_ids = {5};
  c.stop.min_new_tokens = 1;
  c.tree.add_one_hot(2, -1);
  c.logits.insert(c.logits.end(), {4, -4, 4, 1, 1, 7});
  const Judged judged = judge_on_device(cases, 6);
  // 0: prompt only, 4 / 2. 1: -4 * 2 - 2 * .25 - .5. 2: 4 / 2 - .25 - .5. 3: 1 + 1.5.
  // Behind the drafted 2: 4 / 2 - 2 * .25 - .5, and one token exists, so the end is free: 7.
  EXPECT_EQ(judged.ruled, (std::vector<float>{2, -9, 1.25, 2.5, -kInf, -kInf,  //
                                              2, -9, 1, 2.5, -kInf, 7}));
}

void expect_scores(int64_t V, int64_t n_top) {
  const int64_t R = 3;
  const std::vector<float> logits = random_row(7, R * V, 3);
  std::vector<int32_t> tokens = {0, static_cast<int32_t>(V - 1), static_cast<int32_t>(V / 2)};
  DeviceArray<float> d_logits(logits);
  DeviceArray<int32_t> d_tokens(tokens);
  DeviceArray<float> d_logprobs(static_cast<size_t>(R));
  DeviceArray<TokenValue> d_top(static_cast<size_t>(R * n_top));
  score_tokens({d_logprobs.data(), {R}}, {d_top.data(), {R, n_top}}, {d_logits.data(), {R, V}},
               {d_tokens.data(), {R}}, nullptr);
  auto logprobs = d_logprobs.host();
  const int64_t n = std::min(n_top, V);
  for (int64_t r = 0; r < R; ++r) {
    std::span<const float> row(logits.data() + r * V, static_cast<size_t>(V));
    double total = 0;
    for (float l : row) total += std::exp(static_cast<double>(l));
    // exp is good to 2e-7, the result is rounded to float.
    EXPECT_NEAR(logprobs[static_cast<size_t>(r)],
                row[static_cast<size_t>(tokens[static_cast<size_t>(r)])] - std::log(total), 2e-6);
    std::vector<TokenValue> top(static_cast<size_t>(n));
    cuda_check(cudaMemcpy(top.data(), d_top.data() + r * n_top,
                          static_cast<size_t>(n) * sizeof(TokenValue), cudaMemcpyDeviceToHost));
    TokenLogprob want = logprobs_of(row, tokens[static_cast<size_t>(r)], static_cast<int32_t>(n));
    for (size_t i = 0; i < want.top.size(); ++i) {
      EXPECT_EQ(top[i].token, want.top[i].token);
      EXPECT_NEAR(top[i].value, want.top[i].logprob, 1e-6 * (1 + std::abs(top[i].value)));
    }
  }
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

TEST(Score, IsLogSoftmax) {
  for (int64_t V : {1, 33, 300, 4100}) expect_scores(V, 5);
  expect_scores(300, 0);
  expect_scores(300, 256);
}

TEST(Score, ARowThatIsNotFiniteHasNoScore) {
  DeviceArray<float> logits(std::vector<float>{0, 1, kInf, 2}), out(size_t{1});
  DeviceArray<int32_t> token(std::vector<int32_t>{1});
  score_tokens({out.data(), {1}}, {nullptr, {1, 0}}, {logits.data(), {1, 4}}, {token.data(), {1}},
               nullptr);
  EXPECT_TRUE(std::isnan(out.host()[0]));
}

TEST(SampleBudget, ScoresReachTheirKernel) {
  ptxvm::clear_measures();
  for (auto [V, n_top] : {std::pair{300, 7}, {4100, 6}, {4100, 0}}) expect_scores(V, n_top);
  DeviceArray<float> ties(std::vector<float>(600, 1.0f)), bad(std::vector<float>{0, kInf});
  DeviceArray<float> out(size_t{2});
  DeviceArray<int32_t> token(std::vector<int32_t>{0, 1});
  DeviceArray<TokenValue> top(size_t{14});
  score_tokens({out.data(), {2}}, {top.data(), {2, 7}}, {ties.data(), {2, 300}},
               {token.data(), {2}}, nullptr);
  score_tokens({out.data(), {1}}, {nullptr, {1, 0}}, {bad.data(), {1, 2}}, {token.data(), {1}},
               nullptr);
  cuda_check(cudaDeviceSynchronize());
  expect_within({0.95, 100, 100}, "score_kernel");
}

TEST(Sample, NothingIsDoneForNoRows) {
  const uint64_t before = ptxvm::n_launches();
  make_laws({nullptr, {0}}, {nullptr, {0, 0}}, {nullptr, {0, 9}}, {nullptr, {0}}, {nullptr, {0}},
            {nullptr, {0}}, {}, {}, nullptr);
  score_tokens({nullptr, {0}}, {nullptr, {0, 0}}, {nullptr, {0, 9}}, {nullptr, {0}}, nullptr);
  accept({nullptr, {0}}, {nullptr, {0, 9}}, {nullptr, {0, 0}}, {nullptr, {0, 9}}, {nullptr, {0}},
         {nullptr, {0}}, {nullptr, {0}}, {}, {}, nullptr);
  EXPECT_EQ(ptxvm::n_launches(), before);
}

}  // namespace
}  // namespace pf::kernels
