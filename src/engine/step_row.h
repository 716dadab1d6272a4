#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "batch/plan.h"
#include "batch/verified_round.h"
#include "engine/live.h"
#include "sampling/params.h"

namespace pf {

// One planned sequence on its way through the step. Indexes are into what the step keeps.
struct StepRow {
  PlannedSequence plan;
  Live* live = nullptr;
  AcceptPolicy policy;
  int64_t n_before = 0;                  // committed tokens when the step began
  int32_t segment = -1;                  // of the batch; -1: no rows
  int32_t n_draft_fed = 1;               // committed tokens that its first draft pass ran
  int64_t draft_filled = 0;              // JudgedDraft::filled
  int32_t job = -1;                      // of accepting, and its result; -1: nothing is drawn
  size_t first_score = 0, n_scores = 0;  // of the scores of prompts
  std::optional<VerifiedRound> round;    // none: nothing was decoded
  FinishReason finish = FinishReason::kNone;
};

// Where drafting's seconds went so far; for who drives the step by hand, on its thread.
struct DraftTimes {
  std::vector<double> proposing;  // by drafter: steps in which it drafted for anybody
  double catching_up = 0;         // in which it only fed what its plane lacked
  double absorbing = 0;           // taking in hidden states: behind the verify pass
};

// The offers [first, first + n) of the step are one sequence's, whose wish is number `wish`.
struct StepOffers {
  Sequence* sequence = nullptr;
  size_t wish = 0, first = 0, n = 0;
};

}  // namespace pf
