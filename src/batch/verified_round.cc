#include "batch/verified_round.h"

namespace pf {

VerifiedRound VerifiedRound::of(const DraftTree& tree, int32_t drafter, int32_t n_accepted,
                                float alpha) {
  VerifiedRound round;
  round.drafter = tree.size() > 0 ? drafter : -1;
  round.n_drafted = tree.size();
  round.n_accepted = n_accepted;
  round.alpha = alpha;
  for (int32_t depth : tree.depths) ++round.drafted_at[static_cast<size_t>(depth - 1)];
  return round;
}

void SpeculationCounts::add(const VerifiedRound& round) {
  ++rounds;
  drafted += round.n_drafted;
  accepted += round.n_accepted;
  last_alpha = round.alpha;
  if (round.drafter < 0) return;
  auto drafter = static_cast<size_t>(round.drafter);
  rounds_per_drafter.resize(std::max(rounds_per_drafter.size(), drafter + 1), 0);
  ++rounds_per_drafter[drafter];
  round.count_depths(&drafted_at, &accepted_at);
}

}  // namespace pf
