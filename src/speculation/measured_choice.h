#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "speculation/draft_length.h"

namespace pf {

// One sequence and who could draft for it in the coming step.
struct DraftOffers {
  std::span<DraftAsk> offers;  // in the server's order of preference; at least one
  bool decodes = true;         // else the answer is a guess for later, and nobody is tried
  size_t picked = 0;           // the answer
};

// Who drafts for whom: for every sequence the drafter with the most expected tokens per measured
// second, at the depth that suits it. A draft pass costs nearly the same for one row as for many,
// so those who would go with different drafters go together where that is faster for all. Drafters
// that are not used are tried again, the
// longest idle first and one of them at a time, for a few rounds and with 1.2 % of the time at
// most. Knows neither models nor clocks.
class MeasuredChoice {
 public:
  // Sets `picked`, marks the offers that are tried (DraftAsk::least_depth) and counts those that
  // were passed over as idle.
  void choose(const DraftLength& length, std::span<DraftOffers> sequences);
  // After a step with so many decoding sequences: what it took.
  void earn(int32_t n_sequences, double total_seconds);

 private:
  // A step in which everybody goes with the drafter that is picked.
  struct Outcome {
    double tokens = 0, seconds = 0;
    double speed() const { return seconds > 0 ? tokens / seconds : 0; }
  };
  Outcome foretell(const DraftLength& length, std::span<const DraftOffers> sequences);
  void go_together(const DraftLength& length, std::span<DraftOffers> sequences);
  void try_another(const DraftLength& length, std::span<DraftOffers> sequences);
  void find_trials(std::span<DraftOffers> sequences);
  void find_longest_idle(std::span<DraftOffers> sequences);

  double savings_ = 0;  // seconds that trials may cost; below 0: what they have cost too much
  // Reused.
  std::vector<DraftForecast> forecasts_;         // by offer
  std::vector<size_t> first_;                    // by sequence: of forecasts_
  std::vector<int32_t> rows_;                    // [drafters, levels] of one step
  std::vector<int32_t> users_;                   // by drafter
  std::vector<size_t> before_;                   // by sequence: its pick, while another is weighed
  std::vector<std::pair<size_t, size_t>> idle_;  // (sequence, offer) of one drafter
};

}  // namespace pf
