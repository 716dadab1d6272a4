#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/driver.h"

namespace pf {

// What drafting costs, in target steps (a pass of one row, its head and accept rule).
struct DraftCosts {
  std::vector<double> token;  // c by drafter: proposing, for each drafted token
  double absorb = 0;          // taking in hidden states, for each round
  double catch_up = 0;        // feeding a plane what it lacks, for each answer
};

// The same from answers that were made to measure it. Sums over sums: where a list of drafters
// makes some answers by copying and others by a model, the middle answer says nothing of the rest.
class DraftCostSums {
 public:
  // One answer, and how many target steps a second went beside it.
  void add(const DriverRun& run, double steps_per_s);
  // A drafter that never drafted costs 0, so that the formula promises too much rather than too
  // little.
  DraftCosts mean() const;

 private:
  std::vector<double> proposing_;  // by drafter, in target steps, like the next two
  double absorbing_ = 0, catching_up_ = 0;
  std::vector<int64_t> drafted_by_;
  int64_t n_rounds_ = 0, n_answers_ = 0;
};

// What came of the drafts of some answers, each by itself (batch 1). Of trees, a length is the
// number of nodes.
struct SpeculationTally {
  int64_t n_answers = 0;
  int64_t n_tokens = 0;                          // behind the first token of each answer
  int64_t n_rounds = 0;                          // target passes that gave them
  std::vector<int64_t> drafted_at, accepted_at;  // by depth, the first at index 0
  std::vector<int64_t> rounds_of;                // [k]: rounds that drafted k tokens
  std::vector<int64_t> drafted_by;               // tokens by drafter

  void add(const DriverRun& run);

  double accepted_length() const;          // E: tokens per round, the target's own one included
  std::vector<double> acceptance() const;  // by depth: kept of drafted
  double mean_length() const;              // drafted tokens per round
  double mean_cost(const DraftCosts& costs) const;  // c: of a drafted token, whoever drafted it
  // The parts of a round in target steps, on average: k c, where each token counts with the c of
  // its drafter, and v(k + 1), where each round counts with the k that it had.
  // Requires: v covers the longest draft and one row more, costs all drafters.
  double proposing(const DraftCosts& costs) const;
  double verifying(std::span<const double> v) const;
  double upkeep(const DraftCosts& costs) const;  // absorb, and a round's share of catching up
  // E / (k c + v(k + 1)): tokens over what the rounds cost. No tokens: NaN.
  double predicted_speedup(const DraftCosts& costs, std::span<const double> v) const;
  // The same with what drafters cost whether they draft or not.
  double speedup_with_upkeep(const DraftCosts& costs, std::span<const double> v) const;
};

// Where the time of rounds goes beyond what the formula says, in steps of the answers with K = 0
// beside them; on average over the rounds of answers beside which the machine was steady.
class RoundCosts {
 public:
  // One answer and the two with K = 0 beside it.
  void add(const DriverRun& before, const DriverRun& drafted, const DriverRun& after,
           const DraftCosts& costs, std::span<const double> v);

  struct Terms {
    double round = 0;    // as measured
    double formula = 0;  // k c + v(k + 1)
    // Measured less what the formula says: these four and `formula` add up to `round`.
    double propose = 0;  // proposing in place less k c
    double verify = 0;   // the target's pass in place less v(k + 1): what drafts displaced from
                         // caches, a longer context
    double upkeep = 0;   // catching up and absorbing
    double host = 0;     // the rest of the step less v(k + 1) times that of a step with K = 0
  };
  Terms mean() const;  // no rounds: NaN
  int64_t n_rounds() const { return n_rounds_; }

 private:
  Terms sum_;
  int64_t n_rounds_ = 0;
};

std::string join_rates(const std::vector<double>& rates);  // "0.61 0.43"; none: "-"

// Speed-up of a chain of k with acceptance a at every depth, draft cost c and a verify pass that
// costs v target steps (SPECULATION, 4): (1 - a^(k+1)) / ((1 - a) (k c + v)).
double chain_speedup(double a, int k, double c, double v);
// The acceptance at which that is `speedup`; NaN when no a in [0, 1] gives it.
double implied_acceptance(double speedup, int k, double c, double v);

}  // namespace pf
