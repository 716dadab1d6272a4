#pragma once

#include <cuda_runtime_api.h>

#include "base/view.h"
#include "kernels/sample.h"

namespace pf::kernels {

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
