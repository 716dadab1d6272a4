#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "speculation/draft_vocabulary.h"

namespace pf {

inline constexpr int32_t kTopTokens = 5;

// One position as both models see it, by the softmax of their logits.
struct PositionComparison {
  std::vector<std::pair<int32_t, float>> target_top,
      draft_top;               // (token, probability), likeliest first
  double jaccard = 0;          // of the two sets of five: |both| / |either|
  double total_variation = 0;  // half the sum of |p - q|; at best 1 - this much of a draft is kept
};
// Both [V].
PositionComparison compare_position(std::span<const float> target_logits,
                                    std::span<const float> draft_logits);

// A draft's logits [V of the draft] under the target's names [V of the target]; -inf for what it
// cannot say. An empty vocabulary: the names are the same.
// Requires: the vocabulary was fitted to both.
std::vector<float> translate_logits(std::span<const float> draft_logits,
                                    const DraftVocabulary& vocabulary);

// What `pilotfish compare` found about one draft.
struct CompareReport {
  std::string draft;
  std::vector<double> jaccards, kept_at_bests;  // by position, prompt after prompt; 1 - TV
  int32_t k = 0;                                // tokens drafted in a round
  std::vector<double> acceptance;  // [k] measured: kept, of those whose forerunner was kept
  double accepted_length = 1;      // measured: tokens per round
  double step_ratio = 0;           // c: a draft pass over a target pass of one row
  double verify_ratio = 1;         // v(k + 1): a pass of k + 1 rows over one of one row
  double plain_tokens_per_s = 0, tokens_per_s = 0;

  void add(const PositionComparison& c);
  size_t n_positions() const { return jaccards.size(); }
  double jaccard() const;  // means over positions
  double kept_at_best() const;
  // What a round costs, in target steps, when nothing of it is kept.
  double rollback_cost() const { return k * step_ratio + verify_ratio; }
  double predicted_speedup() const { return accepted_length / rollback_cost(); }
  double measured_speedup() const {
    return plain_tokens_per_s > 0 ? tokens_per_s / plain_tokens_per_s : 0;
  }
};

// SOURCES, A: what a draft has to fulfil.
struct CompareGoal {
  const char *id, *name;
  double value, goal;
  bool at_least;  // else: at most
  const char* advice;

  bool pass() const { return at_least ? value >= goal : value <= goal; }
};
std::vector<CompareGoal> compare_goals(const CompareReport& report);

std::string plain_text(const CompareReport& report);
std::string json_text(const CompareReport& report);

}  // namespace pf
