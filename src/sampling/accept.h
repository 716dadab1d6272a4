#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/view.h"
#include "sampling/distribution.h"
#include "sampling/draft_tree.h"
#include "sampling/params.h"

namespace pf {

enum class Origin : uint8_t { kTarget = 1, kDraft = 2, kCorrected = 3, kBonus = 4 };

// Everything that decides the tokens of one sequence in one step. A pure function of this.
struct AcceptInput {
  const DraftTree* tree;  // may be empty: then one token is drawn
  View<const float, 2>
      logits;  // [1 + nodes, V]: row 0 follows the committed tokens, row 1 + i node i
  const SamplingParams* params;
  const StopParams* stop;
  AcceptPolicy policy;
  NoiseKey key;
  int64_t position = 0;           // absolute position of the first token that is drawn
  int32_t n_generated = 0;        // tokens generated before
  TokenCounts* counts = nullptr;  // null without penalties; restored on return
  double loss_spent = 0;          // by earlier rounds
  bool want_logprobs = false;
  int32_t n_top_logprobs = 0;
  int32_t max_tokens = 0;  // >= 1: what request and context still allow
  uint64_t watched = 0;    // nodes whose likeliest next token is wanted, a bit each
};

struct AcceptResult {
  std::vector<int32_t> tokens;  // 1..depth + 1, cut behind an end id and at max_tokens
  std::vector<Origin> origins;
  std::vector<TokenLogprob> logprobs;  // one per token when wanted
  std::vector<int32_t> path;           // accepted nodes that `tokens` still holds, root first
  int32_t n_accepted = 0;              // nodes kept before any cut by a stop
  std::vector<float> losses;    // one per token: mass kept beyond the exact rule; empty: none
  std::vector<int32_t> argmax;  // by node, with or without the rules; -1: not wanted, not finite
  bool ended = false;           // the last token is an end id
  bool finite = true;           // false: a needed row held NaN or infinity; tokens end before it

  double loss() const { return std::accumulate(losses.begin(), losses.end(), 0.0); }
};

// Walks down from the root. At each node the children are tried in order:
//   rejection  keep x while u < p(x) / q(x); after a rejection p becomes norm(max(0, p - q)) and x
//              leaves q, which is renormalised (Leviathan et al. 2023; Chen et al. 2023; sampling
//              without replacement: Chen et al. 2024, "Sequoia"). Then one token from what is left.
//   coupled    the target's token is argmax(log p + g(position)); a child is kept while equal.
//   threshold  as rejection, and also kept when p(x) / q(x) >= alpha and the budget allows.
//   threshold-literal, typical: keep by their inequality alone, else the target's own draw.
// At temperature 0 p is one-hot, and every exact rule is "keep while equal to argmax".
void accept(const AcceptInput& in, AcceptResult* out);

}  // namespace pf
