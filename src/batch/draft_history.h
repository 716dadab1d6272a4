#pragma once

#include <array>
#include <cstdint>

namespace pf {

inline constexpr int32_t kMaxDraftDepth =
    16;  // levels that are told apart; deeper ones count as it

// What was kept of one sequence's drafts by one drafter, with forgetting; written by
// speculation/ alone.
struct DraftHistory {
  std::array<float, kMaxDraftDepth> tried{}, kept{};  // by level, of those that were reached
  float expected = 0, found = 0;  // levels kept, as the server's average foretold and as they were
  int32_t n_idle = 0;             // steps since this sequence last drafted
  int32_t n_trials = 0;           // rounds that a trial of the drafter still lasts
};

}  // namespace pf
