#pragma once

#include <cstdint>
#include <vector>

#include "bench/kernels.h"
#include "bench/plot.h"

namespace pf {

inline constexpr int32_t kMostDrafted = 10;  // as the server's --num-speculative-tokens

// Microseconds of a target pass by rows: as measured, with straight lines between. Beyond the last
// figure the last line goes on, since arithmetic bounds such passes.
struct PassCost {
  std::vector<int32_t> rows = {1};  // rising
  std::vector<double> us = {10'000};

  // A pass of more rows is never cheaper: where it was measured so, the machine was not steady.
  void add(int32_t n_rows, double took_us);
  double operator()(int32_t n_rows) const;
};

struct LengthCase {
  double acceptance;  // of every drafted token whose ancestors are right
  double ratio;       // a draft pass over a target pass of the same rows
  int32_t n_sequences;
  int n_steps;
};

// Tokens per microsecond that the engine's adaptive length gives. It begins with what a server
// measures at its start; what it learns on the way is paid for.
double adaptive_speed(const LengthCase& c, const PassCost& cost);
// Of chains of k for everyone.
double fixed_speed(const LengthCase& c, const PassCost& cost, int32_t k);

// C6: what the choice of the draft length is worth over no drafts and over the best fixed length,
// for acceptances from 0 to 1 and batches from 1 to 64. The engine's own step runs, its controllers
// with it; a pass costs what this backend's passes were measured to cost beside each other, on a
// clock that moves by that alone; the drafter is scripted: each token is right with the acceptance
// asked for, and a draft pass costs a given part of the target's. Writes over the backend's blocks,
// as step_load does.
void bench_length(KernelBench& bench, Backend& backend);
// The lines that it added to the report, drawn: over K = 0 by acceptance, adaptive as a line and
// the best fixed length as points, a diagram for each model, dtype, number of threads and draft
// cost.
std::vector<Plot> length_plots(const Json& lines);

}  // namespace pf
