#pragma once

#include <cuda_runtime_api.h>

#include "base/view.h"
#include "kernels/sample.h"

namespace pf::kernels {

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

// The accept rules over chains and trees, the twin of src/sampling/accept.h (formulas and sources
// there): the same tokens, path, origins and losses for the same p, q and keys.
//
//   accepted  [B]
//   p         float [B, V]      scratch: the residual of each sequence
//   q         [B, q_capacity]   scratch: q without the rejected siblings
//   ruled     float [R, V]      from make_laws
//   laws      [R]               from make_laws of the same rows
//   rules, accept [B]; lists, trees: as for make_laws
//
// The same order of sums for the same V; the scale of a residual can differ from the host's in its
// last bit as `norm` can. B == 0 does nothing. Moves nothing of size V while tokens are kept by the
// greedy or coupled rule; for each rejection and for a sequence's own draw about 16 V bytes.
void accept(View<Accepted, 1> accepted, View<float, 2> p, View<TokenValue, 2> q,
            View<const float, 2> ruled, View<const RowLaw, 1> laws,
            View<const SamplingRules, 1> rules, View<const AcceptRules, 1> accept, RuleLists lists,
            DraftTrees trees, cudaStream_t stream);

}  // namespace pf::kernels
