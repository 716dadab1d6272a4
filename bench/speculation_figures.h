#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/driver.h"

namespace pf {

// What came of the drafts of some answers, each by itself (batch 1). Of trees, a length is the
// number of nodes.
struct SpeculationTally {
  int64_t n_tokens = 0;                          // behind the first token of each answer
  int64_t n_rounds = 0;                          // target passes that gave them
  std::vector<int64_t> drafted_at, accepted_at;  // by depth, the first at index 0
  std::vector<int64_t> rounds_of;                // [k]: rounds that drafted k tokens

  void add(const DriverRun& run);

  double accepted_length() const;          // E: tokens per round, the target's own one included
  std::vector<double> acceptance() const;  // by depth: kept of drafted
  double mean_length() const;              // drafted tokens per round
  // E / (k c + v(k + 1)), where each round counts with the k that it had: tokens over what the
  // rounds cost in target steps. `c`: one drafted token; `v`[m - 1]: a pass of m rows, both over a
  // target step of one row. Requires: v covers the longest draft and one row more. No tokens: NaN.
  double predicted_speedup(double c, std::span<const double> v) const;
};

std::string join_rates(const std::vector<double>& rates);  // "0.61 0.43"; none: "-"

// Speed-up of a chain of k with acceptance a at every depth, draft cost c and a verify pass that
// costs v target steps (SPECULATION, 4): (1 - a^(k+1)) / ((1 - a) (k c + v)).
double chain_speedup(double a, int k, double c, double v);
// The acceptance at which that is `speedup`; NaN when no a in [0, 1] gives it.
double implied_acceptance(double speedup, int k, double c, double v);
// The k in 1..most with the largest chain_speedup (v = 1).
int best_length(double a, double c, int most);

// A row of the table of source C (SOURCES.md): an A100 of 80 GB and a target of 7B.
struct SweepClaim {
  const char* what;
  const char* ours;  // --speculation of the nearest thing that we run; "" none
  int k;
  double speedup;          // claimed, over 25.3 tokens/s
  double first_token;      // claimed, over 280 ms
  double draft_of_target;  // bytes of one draft step in INT4 over the target's in FP16
};
std::span<const SweepClaim> sweep_claims();

}  // namespace pf
