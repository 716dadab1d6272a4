#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch/request.h"
#include "batch/verified_round.h"
#include "engine/histogram.h"
#include "sampling/accept.h"
#include "speculation/speedup_meter.h"

namespace pf {

struct PhaseTimes {
  int64_t arrival_us = 0, first_scheduled_us = -1, first_token_us = -1, end_us = 0;
};

// What the engine says about one completion: token ids only, text is made by those who own it.
// Per completion: one event or more, the last one with `finish`. Events of one request come in
// order.
struct Event {
  uint64_t ticket = 0;
  int32_t index = 0;                   // which of n
  std::vector<int32_t> tokens;         // new ones, the end token included
  std::vector<Origin> origins;         // one per token
  std::vector<TokenLogprob> logprobs;  // one per token when asked for
  std::vector<float> losses;          // one per token: mass kept beyond the exact rule; empty: none
  std::vector<VerifiedRound> rounds;  // that gave the tokens
  bool has_prompt = false;            // the first event of the request
  int64_t n_prompt_tokens = 0, n_cached_tokens = 0;
  std::vector<TokenLogprob> prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  Acceptance acceptance = Acceptance::kRejection;
  PhaseTimes times;  // with finish
};

// Figures of the engine thread at one moment, for metrics, Admin and `top`.
struct Snapshot {
  int32_t n_running = 0, n_waiting = 0;
  int32_t kv_blocks_total = 0, kv_blocks_in_use = 0, kv_blocks_cached = 0;
  uint64_t n_steps = 0;
  int64_t last_step_end_us = 0;
  bool stepping = false;  // work exists: a step is running or due
  int64_t n_prompt_tokens = 0, n_generated_tokens = 0, n_preemptions = 0;
  int64_t n_prefix_queried_tokens = 0, n_prefix_hit_tokens = 0;
  int64_t n_rounds = 0, n_draft_rounds = 0, n_drafted = 0, n_accepted = 0, n_fallbacks = 0;
  std::vector<int64_t> drafted_at, accepted_at;  // by depth
  std::vector<int64_t> rounds_per_drafter;
  double draft_seconds = 0, target_seconds = 0, other_seconds = 0;  // totals over steps
  // Of steps; draft: of those in which somebody drafted.
  TimeHistogram plan_times, draft_times, verify_times, commit_times;
  RowHistogram rows;
  int64_t n_recomputed_target = 0, n_recomputed_draft = 0;  // tokens whose K and V had stood before
  double loss_spent = 0;        // probability mass kept beyond the exact rule
  SpeedupMeter::Total speedup;  // of steps that decoded
  double utilisation = 0;       // percent of the knee, smoothed
  double alpha = 1;             // of the last step with a threshold rule; 1: exact
  double alpha_busy_term = 0, alpha_acceptance_term = 0;
  uint64_t dead_drafters = 0;  // bit i: next to nothing of drafter i is kept
};

}  // namespace pf
