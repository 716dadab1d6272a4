#include "cli/compare_stats.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/line.h"

namespace pf {
namespace {

std::vector<double> softmax(std::span<const float> logits) {
  double most = *std::max_element(logits.begin(), logits.end()), sum = 0;
  std::vector<double> p(logits.size());
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(logits[i] - most);
  for (double& v : p) v /= sum;
  return p;
}

std::vector<std::pair<int32_t, float>> top_of(const std::vector<double>& p) {
  std::vector<int32_t> ids(p.size());
  std::iota(ids.begin(), ids.end(), 0);
  size_t n = std::min<size_t>(kTopTokens, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(),
                    [&](int32_t a, int32_t b) {
                      double pa = p[static_cast<size_t>(a)], pb = p[static_cast<size_t>(b)];
                      return pa != pb ? pa > pb : a < b;
                    });
  std::vector<std::pair<int32_t, float>> top;
  for (size_t i = 0; i < n; ++i)
    top.emplace_back(ids[i], static_cast<float>(p[static_cast<size_t>(ids[i])]));
  return top;
}

double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

}  // namespace

PositionComparison compare_position(std::span<const float> target_logits,
                                    std::span<const float> draft_logits) {
  std::vector<double> p = softmax(target_logits), q = softmax(draft_logits);
  PositionComparison c;
  c.target_top = top_of(p);
  c.draft_top = top_of(q);
  size_t both = 0;
  for (auto [token, probability] : c.target_top)
    both += std::any_of(c.draft_top.begin(), c.draft_top.end(),
                        [&](auto& other) { return other.first == token; });
  c.jaccard = static_cast<double>(both) /
              static_cast<double>(c.target_top.size() + c.draft_top.size() - both);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::abs(p[i] - (i < q.size() ? q[i] : 0));
  c.total_variation = sum / 2;
  return c;
}

std::vector<float> translate_logits(std::span<const float> draft_logits, const DraftVocabulary& v) {
  if (v.empty()) return {draft_logits.begin(), draft_logits.end()};
  std::vector<float> out(v.to_draft.size(), -INFINITY);
  for (size_t d = 0; d < draft_logits.size(); ++d)
    if (int32_t t = v.to_target[d]; t >= 0) out[static_cast<size_t>(t)] = draft_logits[d];
  return out;
}

void CompareReport::add(const PositionComparison& c) {
  jaccards.push_back(c.jaccard);
  kept_at_bests.push_back(1 - c.total_variation);
}

double CompareReport::jaccard() const { return mean_of(jaccards); }

double CompareReport::kept_at_best() const { return mean_of(kept_at_bests); }

std::vector<CompareGoal> compare_goals(const CompareReport& r) {
  return {{"speed-ratio", "speed ratio", r.step_ratio, 0.3, false,
           "too slow for a draft: take a smaller one, or --draft-quantization int4"},
          {"jaccard", "Jaccard of the top 5", r.jaccard(), 0.45, true,
           "the draft thinks of other tokens: tune it on the target's own text of this kind"},
          {"rollback", "rollback cost", r.rollback_cost(), 1.5, false,
           "a refused round costs too much: draft fewer tokens (--num-speculative-tokens)"},
          {"speed-up", "measured speed-up", r.measured_speedup(), 1, true,
           "slower than no draft: --speculation ngram or off suits these prompts better"}};
}

std::string plain_text(const CompareReport& r) {
  std::string text =
      line("draft %s, K = %d, %zu positions\n", r.draft.c_str(), r.k, r.n_positions());
  text += line("  Jaccard of the top 5     %.2f\n", r.jaccard());
  text += line("  1 - TV                   %.2f (what exact rejection keeps at temperature 1)\n",
               r.kept_at_best());
  text += "  acceptance by position  ";
  for (double a : r.acceptance) text += line(" %.2f", a);
  text += line("\n  accepted length          %.2f\n", r.accepted_length);
  text += line("  speed ratio              %.3f (draft step over target step)\n", r.step_ratio);
  text +=
      line("  verify cost              %.2f target steps for %d rows\n", r.verify_ratio, r.k + 1);
  text += line("  rollback cost            %.2f target steps\n", r.rollback_cost());
  text +=
      line("  speed-up                 %.2f predicted, %.2f measured (%.1f over %.1f tokens/s)\n",
           r.predicted_speedup(), r.measured_speedup(), r.tokens_per_s, r.plain_tokens_per_s);
  for (const CompareGoal& g : compare_goals(r)) {
    text += line("  %-4s %s %.2f, wanted %s %.2f", g.pass() ? "good" : "BAD", g.name, g.value,
                 g.at_least ? ">=" : "<=", g.goal);
    text += g.pass() ? "\n" : line(": %s\n", g.advice);
  }
  return text;
}

std::string json_text(const CompareReport& r) {
  nlohmann::json j = {{"draft", r.draft},
                      {"positions", r.n_positions()},
                      {"k", r.k},
                      {"jaccard", r.jaccard()},
                      {"one_minus_tv", r.kept_at_best()},
                      {"jaccard_per_position", r.jaccards},
                      {"one_minus_tv_per_position", r.kept_at_bests},
                      {"acceptance_per_position", r.acceptance},
                      {"accepted_length", r.accepted_length},
                      {"speed_ratio", r.step_ratio},
                      {"verify_ratio", r.verify_ratio},
                      {"rollback_cost", r.rollback_cost()},
                      {"predicted_speedup", r.predicted_speedup()},
                      {"measured_speedup", r.measured_speedup()},
                      {"goals", nlohmann::json::array()}};
  for (const CompareGoal& g : compare_goals(r))
    j["goals"].push_back(
        {{"id", g.id}, {"name", g.name}, {"value", g.value}, {"goal", g.goal}, {"pass", g.pass()}});
  return j.dump();
}

}  // namespace pf
