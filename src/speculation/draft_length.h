#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "batch/draft_shape.h"
#include "speculation/acceptance_model.h"
#include "speculation/draft_depths.h"
#include "speculation/length_rules.h"
#include "speculation/speedup_meter.h"

namespace pf {

enum class LengthRule { kAdaptive, kWindow, kRate, kFixed };

struct DraftLengthOptions {
  LengthRule rule = LengthRule::kFixed;
  int32_t probe_steps =
      200;  // one step in so many runs with K = 0, to measure the speed-up; 0: none
  // By drafter: a draft pass over a target pass before anything is measured.
  std::vector<float> cost_ratios = {};
};

// One sequence that decodes in the coming step and may draft; the answer is `depth`.
struct DraftAsk {
  DraftHistory* history = nullptr;  // of this sequence with this drafter
  TextEase* text = nullptr;         // where several models could draft
  int32_t drafter = 0;
  int32_t match = 0;      // Drafter::match_length
  int32_t max_depth = 0;  // what request, context and drafter allow
  DraftShape shape = {};
  int64_t lag = 0;             // committed tokens that the drafter's plane lacks
  float weight = 1;            // worth of its tokens, see weight_of_slack
  bool fixed = false;          // max_depth exactly, whatever the rule
  int64_t n_left = INT64_MAX;  // tokens that may come
  int32_t least_depth = 0;     // what is drafted even where it does not pay
  int32_t depth = 0;
};

// What one offer would come to.
struct DraftForecast {
  int32_t depth = 0;  // >= 1 where anything can be drafted
  float tokens = 1;   // expected of the round
  double speed = 0;   // tokens per second of the sequence when all sequences do likewise
  bool pays = false;  // that is more than without a draft
  // The same of a trial, which goes deep enough to tell something of the levels.
  int32_t trial_depth = 0;
  float trial_tokens = 1;
  double lag_seconds = 0;                         // to feed what its plane lacks
  double lag_share = 0;                           // of one round in them, when it goes on to serve
  std::array<int32_t, kMaxDraftDepth> n_nodes{};  // by level
};

// The step that the asks are for.
struct StepOutlook {
  int32_t n_plain_rows = 0;   // decoding sequences, and rows of drafts whose length is not asked
  int32_t n_decoding = 0;     // decoding sequences
  int32_t n_prompt_rows = 0;  // rows of prompts
  int32_t max_rows = 0;       // of the step
};

// One draft and what came of it.
struct DraftRound {
  DraftHistory* history = nullptr;
  int32_t drafter = 0, match = 0, depth = 0, n_kept = 0;
  TextEase* text = nullptr;  // as the ask had it
};

// What a step cost and gave.
struct StepReport {
  int32_t n_rows = 0;       // of the target
  int32_t n_sequences = 0;  // that decoded
  int64_t n_tokens = 0;     // that they got
  bool pure = true;         // no prompt rows and no catch-up: costs can be learned
  double target_seconds = 0, total_seconds = 0;
  std::span<const double> draft_seconds = {};  // by drafter
  // By drafter: rows of each draft pass, as many as there were levels.
  std::span<const std::vector<int32_t>> draft_passes = {};
};

// Worth of a token of a sequence that needs `left_us` at its present pace and has `slack_us` until
// its deadline: up to 4 when time is short, 1 when there is enough of it, or none is left at all.
float weight_of_slack(int64_t slack_us, double left_us);

// How many tokens every sequence drafts. Knows neither models nor clocks: costs and acceptance come
// in as data. adaptive: choose_depths over measured costs; besides, probes, paid out of 0.8 % of
// the time, ask again those who draft nothing; and one step in probe_steps runs with K = 0.
class DraftLength {
 public:
  explicit DraftLength(const DraftLengthOptions& options);

  // Before the step: sets every ask's depth.
  void plan(const StepOutlook& outlook, std::span<DraftAsk> asks);
  // After it.
  void learn(std::span<const DraftRound> rounds, const StepReport& report);
  void set_rule(LengthRule rule) { options_.rule = rule; }
  // Costs that were measured on their own before the first step.
  void learn_target(int32_t n_rows, double seconds);
  void learn_draft(int32_t drafter, int32_t n_rows, double seconds);

  // The depth >= 1 with the most tokens per second if n_sequences sequences did likewise (the
  // rule's own depth where that does not follow costs), without the benefit of the doubt.
  DraftForecast forecast(const DraftAsk& ask, int32_t n_sequences) const;

  int32_t n_drafters() const { return static_cast<int32_t>(drafts_.size()); }
  const CostCurve& target_cost() const { return target_; }
  const CostCurve& draft_cost(int32_t drafter) const {
    return drafts_[static_cast<size_t>(drafter)];
  }
  const AcceptanceModel& acceptance() const { return acceptance_; }
  const SpeedupMeter::Total& speedup() const { return meter_.total(); }  // measured, against K = 0

 private:
  void plan_adaptive(const StepOutlook& outlook, std::span<DraftAsk> asks);
  void probe(const StepOutlook& outlook, const DepthAnswer& chosen, std::span<DraftAsk> asks);
  bool plain_step_is_due(std::span<const DraftAsk> asks);
  void learn_costs(const StepReport& report);
  DepthCandidate candidate_of(const DraftAsk& ask, const DraftHistory& history) const;

  DraftLengthOptions options_;
  CostCurve target_;
  std::vector<CostCurve> drafts_;  // by drafter
  AcceptanceModel acceptance_;
  WindowLength window_;
  RateLength rate_;
  SpeedupMeter meter_;
  int32_t n_drafted_ = 0;  // steps with drafts since the last K = 0
  bool probed_plain_ = false;
  double savings_ = 0;    // seconds that probes may cost
  double saves_for_ = 0;  // price of the one that could not be paid
  std::vector<DepthCandidate> candidates_;
  std::vector<size_t> idle_;
};

}  // namespace pf
