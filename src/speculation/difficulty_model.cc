#include "speculation/difficulty_model.h"

#include <algorithm>

namespace pf {
namespace {

constexpr float kKeep = 0.998f;                        // of what is known, from round to round
constexpr std::array<float, 2> kGuess = {0.5f, 0.8f};  // before anything was drafted
constexpr float kPrior = 4;                            // samples that the level before is worth
constexpr float kChange = 0.02f;  // of texts that may be another kind in each round
constexpr float kLeast = 0.01f;   // chance of anything

}  // namespace

DifficultyModel::DifficultyModel(int32_t n_drafters) : levels_(static_cast<size_t>(n_drafters)) {}

DifficultyModel::Rates DifficultyModel::rates(int32_t drafter, size_t kind) const {
  Rates out;
  float before = kGuess[kind];
  for (size_t d = 0; d < out.size(); ++d) {
    const Count& c = levels_[static_cast<size_t>(drafter)][kind][d];
    before = out[d] = (c.kept + kPrior * before) / (c.tried + kPrior);
  }
  return out;
}

// A text that got so far is likelier an easy one.
void DifficultyModel::estimate(const TextEase& text, int32_t drafter, std::span<float> out) const {
  const Rates hard = rates(drafter, kHard), easy = rates(drafter, kEasy);
  float is_easy = text.easy, is_hard = 1 - text.easy;
  for (size_t d = 0; d < out.size(); ++d) {
    const size_t i = std::min(d, easy.size() - 1);
    out[d] = (is_easy * easy[i] + is_hard * hard[i]) / std::max(1e-9f, is_easy + is_hard);
    is_easy *= easy[i];
    is_hard *= hard[i];
  }
}

void DifficultyModel::observe(int32_t drafter, int32_t depth, int32_t n_kept, TextEase* text) {
  const Rates hard = rates(drafter, kHard), easy = rates(drafter, kEasy);
  const auto n_reached = static_cast<size_t>(std::min({depth, n_kept + 1, kMaxDraftDepth}));
  float is_easy = text->easy, is_hard = 1 - text->easy;
  auto chance = [](bool kept, float rate) {
    return std::clamp(kept ? rate : 1 - rate, kLeast, 1 - kLeast);
  };
  for (size_t i = 0; i < n_reached; ++i) {
    const bool kept = static_cast<int32_t>(i) < n_kept;
    is_easy *= chance(kept, easy[i]);
    is_hard *= chance(kept, hard[i]);
  }
  text->easy = is_easy / (is_easy + is_hard);
  const float share[] = {1 - text->easy, text->easy};
  for (size_t kind : {kHard, kEasy}) {
    Levels& levels = levels_[static_cast<size_t>(drafter)][kind];
    for (Count& c : levels) c.tried *= kKeep, c.kept *= kKeep;
    for (size_t i = 0; i < n_reached; ++i) {
      levels[i].tried += share[kind];
      if (static_cast<int32_t>(i) < n_kept) levels[i].kept += share[kind];
    }
  }
  text->easy += kChange * (0.5f - text->easy);
}

}  // namespace pf
