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
// Those from the b-th on.
inline DraftTrees trees_behind(const DraftTrees& t, int64_t b) {
  const int64_t n = b * kMaxNodes;
  return {t.n_nodes + b, t.n_entries + b, t.tokens + n, t.parents + n,          t.depths + n,
          t.q_begin + n, t.q_end + n,     t.scores + n, t.q + b * t.q_capacity, t.q_capacity};
}

enum class RowState : int32_t {
  kGood,
  kNotFinite,  // a logit is NaN or infinite
  kEmpty,      // every token is banned
};

// The distribution of one row after every sampling parameter, in closed form: with l the ruled
// logit and x = (l - max) / temperature (rounded twice),
//   p(token) = exp_nonpositive(x) * norm  where x > cut_x, or x = cut_x and token <= cut_token
//            = 0                          else.
// At temperature 0 p is one-hot on argmax.
struct RowLaw {
  RowState state;
  int32_t argmax;  // the lowest of equal ones
  int32_t winner;  // coupled: argmax of log p + gumbel(position); the lowest of equal ones
  float max;
  float scale;  // 1 / temperature; 0 at temperature 0
  float cut_x;
  int32_t cut_token;
  float norm;
  double log_total;  // log of the sum of exp(l); only where a rule or the client wants scores
  double entropy;    // of p, in nats; only for typical acceptance
};

enum class TokenOrigin : uint8_t { kTarget = 1, kDraft = 2, kCorrected = 3, kBonus = 4 };

// What one sequence got in one step: all that goes back to the host.
struct Accepted {
  int32_t n_tokens;    // 1..depth + 1; 0 where the first row needed is not finite or is empty
  int32_t n_accepted;  // nodes kept: path[0, n_accepted)
  uint8_t ended;       // the last token is an end id
  uint8_t finite;      // 0: a needed row held NaN or infinity, or nothing that may be said
  TokenOrigin origins[kMaxNodes + 1];
  float losses[kMaxNodes + 1];  // of each token: probability mass kept beyond the exact rule
  int32_t tokens[kMaxNodes + 1];
  float logprobs[kMaxNodes + 1];  // where n_top >= 0; the likeliest of token i are those of the row
                                  // of the node before it (path[i - 1], or the root's)
  int32_t path[kMaxNodes];
};

inline constexpr int kSlice = 4096;  // logits of one block
inline int64_t n_slices_of(int64_t V) { return (V + kSlice - 1) / kSlice; }

}  // namespace pf::kernels
