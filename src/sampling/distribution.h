#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/draft_tree.h"
#include "sampling/noise.h"
#include "sampling/params.h"
#include "sampling/token_counts.h"

namespace pf {

// What shapes the distribution of one position, besides the logits.
struct RowRules {
  const SamplingParams* params;
  const TokenCounts* counts;  // prompt, output and the drafted tokens before; null: no penalty
  std::span<const int32_t> banned;  // end ids while min_new_tokens is not reached
};

// The distribution after every sampling parameter, over tokens in ascending order; tokens that
// are missing have probability 0. `ids` empty means that entry i is token i.
struct Distribution {
  std::vector<int32_t> ids;
  std::vector<float> p;  // sums to 1 up to rounding

  int32_t token(size_t i) const { return ids.empty() ? static_cast<int32_t>(i) : ids[i]; }
  float at(int32_t token) const;  // O(1) when dense, O(log n) else
};

// True when every logit is finite. What fails this never reaches a distribution.
bool all_finite(std::span<const float> logits);

// In place on logits [V]: repetition, presence and frequency penalties (as in vLLM: repetition on
// prompt and output, the others on the output), then bias, then bans (-inf).
void apply_rules(const RowRules& rules, std::span<float> logits);

// argmax; the lowest id wins a tie. Requires: not empty.
int32_t argmax(std::span<const float> logits);

// Logits after apply_rules -> the distribution: temperature, min-p, top-k, top-p, in this order
// (as in vLLM), ties at a border kept by lower id first. Temperature 0 gives one-hot of argmax.
void make_distribution(const SamplingParams& params, std::span<const float> logits,
                       Distribution* out);

// The same for a draft's most likely tokens: `top` holds (token, logit), any order. The result is
// normalised over them, sorted by falling probability (lower token first).
void make_draft_distribution(const RowRules& rules, std::span<const TokenProbability> top_logits,
                             std::vector<TokenProbability>* out);

// Inverse of the cumulative distribution at u in (0, 1), walking tokens in ascending order.
// Requires: some p > 0.
int32_t draw(const Distribution& d, double u);

// argmax of log p + gumbel noise at this position. Requires: some p > 0.
int32_t draw_coupled(const Distribution& d, NoiseKey key, int64_t position);

struct TopLogprob {
  int32_t token;
  float logprob;
};
// Log-softmax of logits after apply_rules, of the chosen token and of the n most likely
// (falling, lower token first).
struct TokenLogprob {
  float logprob = 0;
  std::vector<TopLogprob> top;
};
TokenLogprob logprobs_of(std::span<const float> logits, int32_t token, int32_t n_top);

}  // namespace pf
