#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pf {

// How a token is drawn, as the client asked for it. Values are inside their ranges (the wire
// contract states them); the border has checked that.
struct SamplingParams {
  float temperature = 0;                              // 0: greedy
  int32_t top_k = 0;                                  // <= 0: off
  float top_p = 1;                                    // 1: off
  float min_p = 0;                                    // 0: off
  float presence_penalty = 0;                         // once per token that stands in the output
  float frequency_penalty = 0;                        // times its count in the output
  float repetition_penalty = 1;                       // for tokens of prompt or output; 1: off
  std::vector<std::pair<int32_t, float>> logit_bias;  // (token, bias); kBannedBias bans

  bool greedy() const { return temperature == 0; }
  bool has_penalties() const {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1;
  }
};

inline constexpr float kBannedBias = -100;

// When to stop, in tokens; stop strings are the business of those who own text.
struct StopParams {
  std::vector<int32_t> end_ids;  // EOS (unless ignored) and stop tokens, sorted
  int32_t min_new_tokens = 0;    // end ids are banned before so many tokens exist
  int32_t max_new_tokens = 256;
};

// Which drafted tokens are kept. See sampling/accept.h for each rule.
enum class Acceptance { kRejection, kCoupled, kThreshold, kThresholdLiteral, kTypical };

struct AcceptPolicy {
  Acceptance rule = Acceptance::kRejection;
  float alpha = 1;         // threshold rules: keep when p / q >= alpha; 1 is exact
  float loss_budget = -1;  // probability mass that may be spent; < 0: no limit
  float typical_epsilon = 0.09f, typical_delta = 0.3f;  // Medusa's values
};

}  // namespace pf
