#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "batch/draft_history.h"
#include "speculation/cost_curve.h"

namespace pf {

// One sequence that decodes in the step and could draft.
struct DepthCandidate {
  int32_t drafter = 0;
  int32_t max_depth = 0;                      // levels at most; 0..kMaxDraftDepth
  float weight = 1;                           // worth of its tokens; more when its deadline is near
  std::array<float, kMaxDraftDepth> reach{};  // [d] P(levels 1..d + 1 are all kept)
  std::array<int32_t, kMaxDraftDepth> n_nodes{};  // [d] nodes of level d + 1
  int32_t depth = 0;                              // the answer: levels to draft
};

// What a step costs.
struct StepCosts {
  const CostCurve* target = nullptr;
  // By drafter: seconds of one draft pass (one level) by its rows.
  std::span<const CostCurve> drafts;
};

// The step around the candidates.
struct DepthQuestion {
  int32_t n_plain_rows = 0;   // rows of decoding sequences without their drafts, and fixed drafts
  int32_t n_prompt_rows = 0;  // rows of prompts in the same step
  int32_t max_draft_rows = 0;
  float plain_tokens = 0;  // weighted tokens that come without any draft
};

struct DepthAnswer {
  int32_t n_nodes = 0;
  double tokens = 0;   // expected, weighted, of the step without its prompts
  double seconds = 0;  // expected, likewise
  double gain = 1;     // tokens per second over those of K = 0
};

// How deep every sequence drafts in this step: expected tokens over expected seconds, the best of
//   - every number of levels L (a draft pass costs what it costs, whoever takes part), and
//   - every price: a node is drafted when its chance of being kept, by row and weight, reaches it.
// Chances fall from level to level, so that what is drafted are whole levels; all nodes of about
// the same chance come in together, since on a batch the first of them alone never pays. Nothing is
// drafted for a gain below 1 %. Beside prompts a step takes long whatever is drafted, so there the
// nodes must earn what they add at the rate of a step without prompts. Writes `depth` of each
// candidate. O(candidates x levels); a pure function. (Formula: SPECULATION section 4; its S is
// tokens / seconds here.)
DepthAnswer choose_depths(const DepthQuestion& question, const StepCosts& costs,
                          std::span<DepthCandidate> candidates);

}  // namespace pf
