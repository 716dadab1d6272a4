#pragma once

#include <cstdint>

#include "base/noise.h"

namespace pf::kernels {

// What sample, accept and draft speak of, as plain data in device memory: the device's form of
// sampling/params.h and sampling/draft_tree.h. Token ids stand inside [0, V).

struct TokenValue {  // a logit, bias, probability or log-probability
  int32_t token;
  float value;
};

struct TokenCount {  // how often a token stands in the output, and whether in the prompt
  int32_t token;
  int32_t output;
  int32_t prompt;  // 0 or 1
};

inline constexpr int kMaxNodes = 64;           // of a tree
inline constexpr int kMaxTop = 256;            // likeliest tokens that are listed
inline constexpr int32_t kRootNode = -1;       // the parent of a tree's first level
inline constexpr int32_t kNoNode = -2;         // an unused place among a level's nodes
inline constexpr float kBannedBias = -100;     // a bias that bans
inline constexpr float kSmallestExp = -87.0f;  // exp_nonpositive is 0 below

enum class AcceptRule : int32_t { kRejection, kCoupled, kThreshold, kThresholdLiteral, kTypical };

// Lists of all sequences, one behind the other.
struct RuleLists {
  const TokenCount* counts;  // of one sequence: rising tokens, each once
  const TokenValue* biases;  // of one sequence: each token once
  const int32_t* end_ids;
};

// How one sequence draws. Everything but the tree.
struct SamplingRules {
  NoiseKey key;
  int64_t position;     // absolute, of the first token that is drawn or drafted
  int32_t n_generated;  // tokens generated before
  int32_t min_new_tokens;
  float temperature;  // 0: greedy
  int32_t top_k;      // <= 0: off
  float top_p;        // 1: off
  float min_x;        // logf(min_p); kSmallestExp where min_p is 0
  float presence, frequency, repetition;
  int32_t penalised;  // 0: no penalty is set, and the counts are not read
  int32_t first_count, n_counts;
  int32_t first_bias, n_biases;
  int32_t first_end, n_ends;
};

// What a sequence keeps, and which of its rows are judged.
struct AcceptRules {
  AcceptRule rule;
  int32_t first_row;  // of `logits`: behind the committed tokens; node i has first_row + 1 + i
  float alpha;        // threshold rules
  float loss_budget;  // < 0: no limit
  float typical_epsilon, typical_delta;
  double loss_spent;   // by earlier rounds
  int32_t max_tokens;  // >= 1
  int32_t n_top;       // log-probabilities of so many likeliest tokens; < 0: none at all
};

// B trees of up to kMaxNodes nodes; node i of tree b stands at [b * kMaxNodes + i]. Parents precede
// children. A node's q is q[b * q_capacity + q_begin, ... + q_end), each token once, every value
// positive, summing to 1; empty means one-hot. Siblings drawn without replacement share one range,
// and no other nodes do.
struct DraftTrees {
  int32_t* n_nodes;                                      // [B]
  int32_t* n_entries;                                    // [B] used of q
  int32_t *tokens, *parents, *depths, *q_begin, *q_end;  // [B, kMaxNodes]
  float* scores;                                         // [B, kMaxNodes]
  TokenValue* q;                                         // [B, q_capacity]
  int32_t q_capacity;
};

}  // namespace pf::kernels
