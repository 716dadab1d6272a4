#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/draft_tree.h"

namespace pf {

// The n largest of a head row's logits, as (token, logit) in any order; of equal ones the lower
// token. `tokens` names the token of each; empty: its index. Requires: no NaN. O(V) compares and
// few more: whatever stands below the n-th best so far is passed by, sixteen at a time.
void find_top_logits(std::span<const float> logits, std::span<const int32_t> tokens, size_t n,
                     std::vector<TokenProbability>* top);

}  // namespace pf
