#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "sampling/draft_tree.h"

namespace pf {

// What one verified round of one completion says of its draft.
struct VerifiedRound {
  int32_t first_token = 0;                // its first one, among those that it is told with
  int32_t drafter = -1;                   // by index; -1: nobody drafted
  int32_t n_drafted = 0, n_accepted = 0;  // nodes; kept ones, before any cut by a stop
  float alpha = 1;
  std::array<uint8_t, kMaxTreeNodes> drafted_at{};  // nodes by depth, the first at index 0

  // Adds this round to counts by depth.
  template <class N>
  void count_depths(std::vector<N>* drafted, std::vector<N>* accepted) const {
    size_t depth = 0;
    while (depth < drafted_at.size() && drafted_at[depth] > 0) ++depth;
    for (auto* v : {drafted, accepted}) v->resize(std::max(v->size(), depth), 0);
    for (size_t d = 0; d < depth; ++d) (*drafted)[d] += drafted_at[d];
    for (size_t d = 0; d < static_cast<size_t>(n_accepted); ++d) ++(*accepted)[d];
  }

  static VerifiedRound of(const DraftTree& tree, int32_t drafter, int32_t n_accepted, float alpha);
};

// The sum over a completion's rounds, as a reply reports it.
struct SpeculationCounts {
  int32_t rounds = 0, drafted = 0, accepted = 0;
  std::vector<int32_t> drafted_at, accepted_at;  // by depth, the first at index 0
  std::vector<int32_t> rounds_per_drafter;       // by drafter index, as far as any drafted
  double loss = 0;                               // added apart, token by token
  float last_alpha = 1;

  void add(const VerifiedRound& round);
};

}  // namespace pf
