#include "bench/speculation_figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/check.h"

namespace pf {
namespace {

void add_to(std::vector<int64_t>* sums, const std::vector<int64_t>& counts) {
  sums->resize(std::max(sums->size(), counts.size()), 0);
  for (size_t i = 0; i < counts.size(); ++i) (*sums)[i] += counts[i];
}

// INT4 drafts of 0.5B and 1.5B beside 7B in FP16; three Medusa heads read about what 0.05B do. The
// shared KV saves memory and the draft's prompt, not bytes of a draft step.
constexpr double kHalfB = 0.5 * 0.5 / (7 * 2), kOneAndHalfB = 1.5 * 0.5 / (7 * 2);
constexpr SweepClaim kClaims[] = {
    {"0.5B draft", "model", 5, 58.7 / 25.3, 285.0 / 280, kHalfB},
    {"0.5B draft", "model", 8, 63.2 / 25.3, 288.0 / 280, kHalfB},
    {"1.5B draft", "", 5, 52.1 / 25.3, 295.0 / 280, kOneAndHalfB},
    {"0.5B draft, KV shared", "early-exit", 5, 72.4 / 25.3, 270.0 / 280, kHalfB},
    {"Medusa, 3 heads", "eagle", 3, 68.9 / 25.3, 285.0 / 280, 0.05 / (7 * 2)},
};

}  // namespace

void SpeculationTally::add(const DriverRun& run) {
  n_tokens += run.n_decoded();
  n_rounds += run.n_rounds;
  add_to(&drafted_at, run.drafted_at);
  add_to(&accepted_at, run.accepted_at);
  add_to(&rounds_of, run.rounds_of);
}

double SpeculationTally::accepted_length() const {
  return n_rounds > 0 ? static_cast<double>(n_tokens) / static_cast<double>(n_rounds) : NAN;
}

std::vector<double> SpeculationTally::acceptance() const {
  std::vector<double> rates;
  for (size_t d = 0; d < drafted_at.size() && drafted_at[d] > 0; ++d) {
    int64_t kept = d < accepted_at.size() ? accepted_at[d] : 0;
    rates.push_back(static_cast<double>(kept) / static_cast<double>(drafted_at[d]));
  }
  return rates;
}

double SpeculationTally::mean_length() const {
  int64_t n = 0;
  for (int64_t d : drafted_at) n += d;
  return n_rounds > 0 ? static_cast<double>(n) / static_cast<double>(n_rounds) : NAN;
}

double SpeculationTally::predicted_speedup(double c, std::span<const double> v) const {
  double cost = 0;
  for (size_t k = 0; k < rounds_of.size(); ++k) {
    if (rounds_of[k] == 0) continue;
    check(k < v.size(), "the verify curve is shorter than a draft");
    cost += static_cast<double>(rounds_of[k]) * (static_cast<double>(k) * c + v[k]);
  }
  return cost > 0 ? static_cast<double>(n_tokens) / cost : NAN;
}

std::string join_rates(const std::vector<double>& rates) {
  std::string text;
  for (double rate : rates) {
    char number[16];
    std::snprintf(number, sizeof(number), "%s%.2f", text.empty() ? "" : " ", rate);
    text += number;
  }
  return text.empty() ? "-" : text;
}

double chain_speedup(double a, int k, double c, double v) {
  double expected = a < 1 ? (1 - std::pow(a, k + 1)) / (1 - a) : k + 1;
  return expected / (k * c + v);
}

double implied_acceptance(double speedup, int k, double c, double v) {
  double low = 0, high = 1;
  if (speedup < chain_speedup(low, k, c, v) || speedup > chain_speedup(high, k, c, v)) return NAN;
  for (int i = 0; i < 60; ++i) {  // it grows with a
    double middle = (low + high) / 2;
    (chain_speedup(middle, k, c, v) < speedup ? low : high) = middle;
  }
  return (low + high) / 2;
}

int best_length(double a, double c, int most) {
  int best = 1;
  for (int k = 2; k <= most; ++k)
    if (chain_speedup(a, k, c, 1) > chain_speedup(a, best, c, 1)) best = k;
  return best;
}

std::span<const SweepClaim> sweep_claims() { return kClaims; }

}  // namespace pf
