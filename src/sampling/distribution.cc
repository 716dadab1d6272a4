#include "sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "sampling/fast_math.h"

namespace pf {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What the rules make of one token's logit, bans aside.
float penalised(const SamplingParams& p, TokenCounts::Count count, float logit) {
  if (p.repetition_penalty != 1)
    logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  if (count.output > 0)
    logit -= p.frequency_penalty * static_cast<float>(count.output) + p.presence_penalty;
  return logit;
}

float biased(float bias, float logit) {
  return bias <= kBannedBias ? kMinusInfinity : logit + bias;
}

struct Candidate {
  float x;  // (logit - max) / temperature
  int32_t token;
};

// Falling probability, lower token first: the order in which top-k and top-p keep.
bool goes_first(const Candidate& a, const Candidate& b) {
  return a.x != b.x ? a.x > b.x : a.token < b.token;
}

// Cuts the list behind the smallest set of likeliest candidates whose mass reaches top_p.
void keep_top_p(float top_p, std::vector<Candidate>* list) {
  double total = 0;
  for (const Candidate& c : *list) total += exp_nonpositive(c.x);
  double mass = 0;
  size_t sorted = 0;
  for (size_t want = 64; sorted < list->size(); want *= 8) {
    size_t end = std::min(want, list->size());
    auto at = [&](size_t i) { return list->begin() + static_cast<std::ptrdiff_t>(i); };
    if (end < list->size()) std::nth_element(at(sorted), at(end), list->end(), goes_first);
    std::sort(at(sorted), at(end), goes_first);
    for (; sorted < end; ++sorted) {
      mass += exp_nonpositive((*list)[sorted].x);
      if (mass >= top_p * total) {
        list->resize(sorted + 1);
        return;
      }
    }
  }
}

void keep_top_k(int32_t top_k, std::vector<Candidate>* list) {
  if (top_k <= 0 || static_cast<size_t>(top_k) >= list->size()) return;
  std::nth_element(list->begin(), list->begin() + top_k, list->end(), goes_first);
  list->resize(static_cast<size_t>(top_k));
}

// Temperature and truncation have been applied to the list; the rest is a softmax over it.
void normalise(std::vector<float>* p) {
  double total = 0;
  for (float v : *p) total += v;
  float scale = static_cast<float>(1 / total);
  for (float& v : *p) v *= scale;
}

}  // namespace

float Distribution::at(int32_t token) const {
  if (ids.empty())
    return token < static_cast<int32_t>(p.size()) ? p[static_cast<size_t>(token)] : 0;
  auto it = std::lower_bound(ids.begin(), ids.end(), token);
  return it != ids.end() && *it == token ? p[static_cast<size_t>(it - ids.begin())] : 0;
}

bool all_finite(std::span<const float> logits) {
  // The sum of x * 0 is 0 unless some x is NaN or infinite; vectorises where isfinite does not.
  float probe[16] = {};
  size_t n = logits.size(), i = 0;
  for (; i + 16 <= n; i += 16)
    for (size_t j = 0; j < 16; ++j) probe[j] += logits[i + j] * 0.0f;
  for (; i < n; ++i) probe[0] += logits[i] * 0.0f;
  float sum = 0;
  for (float v : probe) sum += v;
  return sum == 0;
}

void apply_rules(const RowRules& rules, std::span<float> logits) {
  const SamplingParams& p = *rules.params;
  auto in_range = [&](int32_t t) { return t >= 0 && static_cast<size_t>(t) < logits.size(); };
  if (rules.counts != nullptr) {
    for (const auto& [token, count] : rules.counts->counts())
      if (in_range(token)) {
        float& logit = logits[static_cast<size_t>(token)];
        logit = penalised(p, count, logit);
      }
  }
  for (auto [token, bias] : p.logit_bias)
    if (in_range(token)) {
      float& logit = logits[static_cast<size_t>(token)];
      logit = biased(bias, logit);
    }
  for (int32_t token : rules.banned)
    if (in_range(token)) logits[static_cast<size_t>(token)] = kMinusInfinity;
}

int32_t argmax(std::span<const float> logits) {
  // First the maximum, which vectorises, then where it stands first.
  float best[16];
  std::fill(best, best + 16, kMinusInfinity);
  size_t n = logits.size(), i = 0;
  for (; i + 16 <= n; i += 16)
    for (size_t j = 0; j < 16; ++j) best[j] = logits[i + j] > best[j] ? logits[i + j] : best[j];
  for (; i < n; ++i) best[0] = std::max(best[0], logits[i]);
  float max = *std::max_element(best, best + 16);
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

void make_distribution(const SamplingParams& params, std::span<const float> logits,
                       Distribution* out) {
  out->ids.clear();
  out->p.clear();
  int32_t best = argmax(logits);
  if (static_cast<size_t>(best) == logits.size()) return;
  float max = logits[static_cast<size_t>(best)];
  if (max == kMinusInfinity) return;  // everything is banned
  if (params.greedy()) {
    out->ids.push_back(best);
    out->p.push_back(1);
    return;
  }
  float scale = 1 / params.temperature;
  bool truncated = params.min_p > 0 || params.top_p < 1 ||
                   (params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size());
  if (!truncated) {
    out->p.resize(logits.size());
    for (size_t i = 0; i < logits.size(); ++i)
      out->p[i] = exp_nonpositive((logits[i] - max) * scale);
    return normalise(&out->p);
  }
  float floor = params.min_p > 0 ? std::log(params.min_p) : -87.0f;
  std::vector<Candidate> list;
  for (size_t i = 0; i < logits.size(); ++i) {
    float x = (logits[i] - max) * scale;
    if (x >= floor) list.push_back({x, static_cast<int32_t>(i)});
  }
  keep_top_k(params.top_k, &list);
  if (params.top_p < 1) keep_top_p(params.top_p, &list);
  std::sort(list.begin(), list.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  for (const Candidate& c : list) {
    out->ids.push_back(c.token);
    out->p.push_back(exp_nonpositive(c.x));
  }
  normalise(&out->p);
}

void make_draft_distribution(const RowRules& rules, std::span<const TokenProbability> top_logits,
                             std::vector<TokenProbability>* out) {
  const SamplingParams& p = *rules.params;
  std::vector<Candidate> list;
  for (auto [token, logit] : top_logits) {
    if (rules.counts != nullptr) {
      auto it = rules.counts->counts().find(token);
      if (it != rules.counts->counts().end()) logit = penalised(p, it->second, logit);
    }
    for (auto [biased_token, bias] : p.logit_bias)
      if (biased_token == token) logit = biased(bias, logit);
    bool banned = std::find(rules.banned.begin(), rules.banned.end(), token) != rules.banned.end();
    if (!banned && logit > kMinusInfinity) list.push_back({logit, token});
  }
  out->clear();
  if (list.empty()) return;
  std::sort(list.begin(), list.end(), goes_first);
  if (p.greedy()) list.erase(list.begin() + 1, list.end());
  float max = list[0].x;
  for (Candidate& c : list) c.x = p.greedy() ? 0 : (c.x - max) / p.temperature;
  if (p.min_p > 0)
    std::erase_if(list, [floor = std::log(p.min_p)](const Candidate& c) { return c.x < floor; });
  keep_top_k(p.top_k, &list);
  if (p.top_p < 1) keep_top_p(p.top_p, &list);
  std::sort(list.begin(), list.end(), goes_first);
  double total = 0;
  for (Candidate& c : list) total += c.x = exp_nonpositive(c.x);
  for (const Candidate& c : list)
    if (c.x > 0) out->push_back({c.token, static_cast<float>(c.x / total)});
}

int32_t draw(const Distribution& d, double u) {
  double total = 0;
  for (float v : d.p) total += v;
  double left = u * total;
  int32_t last = -1;
  for (size_t i = 0; i < d.p.size(); ++i) {
    if (d.p[i] <= 0) continue;
    last = d.token(i);
    left -= d.p[i];
    if (left < 0) break;
  }
  check(last >= 0, "a draw from an empty distribution");
  return last;
}

int32_t draw_coupled(const Distribution& d, NoiseKey key, int64_t position) {
  // Starting from the likeliest token, whoever cannot win even with the largest noise is skipped.
  size_t first = static_cast<size_t>(argmax(d.p));
  check(first < d.p.size() && d.p[first] > 0, "a draw from an empty distribution");
  float best = log_positive(d.p[first]) + gumbel(key, position, d.token(first));
  int32_t winner = d.token(first);
  float floor = std::max(exp_nonpositive(std::min(best - kMaxGumbel, 0.0f)), 1e-37f);
  for (size_t i = 0; i < d.p.size(); ++i) {
    if (d.p[i] < floor || i == first) continue;
    float score = log_positive(d.p[i]) + gumbel(key, position, d.token(i));
    if (score > best || (score == best && d.token(i) < winner)) {
      best = score;
      winner = d.token(i);
      floor = std::max(exp_nonpositive(std::min(best - kMaxGumbel, 0.0f)), floor);
    }
  }
  return winner;
}

TokenLogprob logprobs_of(std::span<const float> logits, int32_t token, int32_t n_top) {
  float max = logits[static_cast<size_t>(argmax(logits))];
  double total = 0;
  for (float v : logits) total += exp_nonpositive(v - max);
  double log_total = max + std::log(total);
  auto of = [&](int32_t t) {
    return static_cast<float>(logits[static_cast<size_t>(t)] - log_total);
  };
  TokenLogprob out;
  out.logprob = of(token);
  if (n_top <= 0) return out;
  std::vector<Candidate> list(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) list[i] = {logits[i], static_cast<int32_t>(i)};
  size_t n = std::min(static_cast<size_t>(n_top), list.size());
  std::partial_sort(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(n), list.end(),
                    goes_first);
  for (size_t i = 0; i < n; ++i) out.top.push_back({list[i].token, of(list[i].token)});
  return out;
}

}  // namespace pf
