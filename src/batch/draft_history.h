#pragma once

#include <array>
#include <cstdint>

namespace pf {

inline constexpr int32_t kMaxDraftDepth =
    16;  // levels that are told apart; deeper ones count as it

// How a text looks to the models that could draft for it (speculation/difficulty_model.h).
struct TextEase {
  float easy = 0.5f;    // the chance that it is an easy one
  bool counts = false;  // more than one model could draft in the present step
};

// What was kept of one sequence's drafts by one drafter, with forgetting; written by
// speculation/ alone.
struct DraftHistory {
  std::array<float, kMaxDraftDepth> tried{}, kept{};  // by level, of those that were reached
  float expected = 0, found = 0;  // levels kept, as the server's average foretold and as they were
  int32_t n_idle = 0;             // steps since this sequence last drafted
  int32_t n_trials = 0;           // rounds that a trial of the drafter still lasts
  bool owes_probe = false;        // it was paid for, and so far the plane only caught up
};

}  // namespace pf
