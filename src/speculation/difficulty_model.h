#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "batch/draft_history.h"

namespace pf {

// How easy a text is for drafts, whoever makes them. Every text is taken for one of two kinds, easy
// or hard, which it changes now and then; of each kind it is known, for all texts together, how
// likely every drafter's tokens are kept. A round says which kind the text is likely of, by what
// was kept of it, and so what one draft meets on a text foretells what another one would: a small
// draft that fails says that the large one is due, and a large one that never fails that the small
// one would do. (A hidden Markov model of two states; its laws are learned as it goes, each round
// by the chance of its kind.)
class DifficultyModel {
 public:
  explicit DifficultyModel(int32_t n_drafters);

  // Fills out[d] = P(level d + 1 is kept | level d was kept) of a drafter on this text.
  void estimate(const TextEase& text, int32_t drafter, std::span<float> out) const;
  // A round with `depth` levels of which the first n_kept were kept.
  void observe(int32_t drafter, int32_t depth, int32_t n_kept, TextEase* text);

 private:
  static constexpr size_t kHard = 0, kEasy = 1;
  struct Count {
    float tried = 0, kept = 0;
  };
  using Levels = std::array<Count, kMaxDraftDepth>;
  using Rates = std::array<float, kMaxDraftDepth>;

  Rates rates(int32_t drafter, size_t kind) const;

  std::vector<std::array<Levels, 2>> levels_;  // [drafters]: of hard and of easy texts
};

}  // namespace pf
