#include "bench/speculation_figures.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/check.h"

namespace pf {
namespace {

template <class N>
void add_to(std::vector<N>* sums, const std::vector<N>& more, N times = 1) {
  sums->resize(std::max(sums->size(), more.size()), 0);
  for (size_t i = 0; i < more.size(); ++i) (*sums)[i] += more[i] * times;
}

}  // namespace

void DraftCostSums::add(const DriverRun& run, double steps_per_s) {
  add_to(&proposing_, run.propose_s, steps_per_s);
  absorbing_ += run.absorb_s * steps_per_s;
  catching_up_ += run.catch_up_s * steps_per_s;
  add_to(&drafted_by_, run.drafted_by);
  n_rounds_ += run.n_rounds;
  n_answers_ += static_cast<int64_t>(run.tokens.size());
}

DraftCosts DraftCostSums::mean() const {
  DraftCosts costs;
  auto share = [](double sum, int64_t n) { return n > 0 ? sum / static_cast<double>(n) : 0; };
  for (size_t d = 0; d < proposing_.size(); ++d)
    costs.token.push_back(share(proposing_[d], d < drafted_by_.size() ? drafted_by_[d] : 0));
  costs.absorb = share(absorbing_, n_rounds_);
  costs.catch_up = share(catching_up_, n_answers_);
  return costs;
}

void SpeculationTally::add(const DriverRun& run) {
  n_answers += static_cast<int64_t>(run.tokens.size());
  n_tokens += run.n_decoded();
  n_rounds += run.n_rounds;
  add_to(&drafted_at, run.drafted_at);
  add_to(&accepted_at, run.accepted_at);
  add_to(&rounds_of, run.rounds_of);
  add_to(&drafted_by, run.drafted_by);
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

double SpeculationTally::mean_cost(const DraftCosts& costs) const {
  return mean_length() > 0 ? proposing(costs) / mean_length() : NAN;
}

double SpeculationTally::proposing(const DraftCosts& costs) const {
  double sum = 0;
  for (size_t d = 0; d < drafted_by.size(); ++d) {
    if (drafted_by[d] == 0) continue;
    check(d < costs.token.size(), "a drafter without a cost");
    sum += static_cast<double>(drafted_by[d]) * costs.token[d];
  }
  return sum / static_cast<double>(n_rounds);
}

double SpeculationTally::verifying(std::span<const double> v) const {
  double sum = 0;
  for (size_t k = 0; k < rounds_of.size(); ++k) {
    if (rounds_of[k] == 0) continue;
    check(k < v.size(), "the verify curve is shorter than a draft");
    sum += static_cast<double>(rounds_of[k]) * v[k];
  }
  return sum / static_cast<double>(n_rounds);
}

double SpeculationTally::upkeep(const DraftCosts& costs) const {
  return costs.absorb +
         costs.catch_up * static_cast<double>(n_answers) / static_cast<double>(n_rounds);
}

double SpeculationTally::predicted_speedup(const DraftCosts& costs,
                                           std::span<const double> v) const {
  return n_rounds > 0 ? accepted_length() / (proposing(costs) + verifying(v)) : NAN;
}

double SpeculationTally::speedup_with_upkeep(const DraftCosts& costs,
                                             std::span<const double> v) const {
  return n_rounds > 0 ? accepted_length() / (proposing(costs) + verifying(v) + upkeep(costs)) : NAN;
}

void RoundCosts::add(const DriverRun& before, const DriverRun& drafted, const DriverRun& after,
                     const DraftCosts& costs, std::span<const double> v) {
  const auto plain_steps = static_cast<double>(before.n_decoded() + after.n_decoded());
  const double plain_s = before.decode_s + after.decode_s;
  if (drafted.n_rounds == 0 || !(plain_steps > 0) || !(plain_s > 0)) return;
  SpeculationTally own;
  own.add(drafted);
  const auto n = static_cast<double>(drafted.n_rounds);
  const double per_step = plain_steps / plain_s;  // of seconds to steps
  const double plain_target = (before.target_s + after.target_s) / plain_s;
  const double k_c = own.proposing(costs), v_m = own.verifying(v);
  const double upkeep_s = drafted.catch_up_s + drafted.absorb_s;
  const double host_s = drafted.decode_s - drafted.draft_s() - drafted.target_s - upkeep_s;
  sum_.round += drafted.decode_s * per_step;
  sum_.formula += n * (k_c + v_m);
  sum_.propose += drafted.draft_s() * per_step - n * k_c;
  sum_.verify += drafted.target_s * per_step - n * v_m * plain_target;
  sum_.upkeep += upkeep_s * per_step;
  sum_.host += host_s * per_step - n * v_m * (1 - plain_target);
  n_rounds_ += drafted.n_rounds;
}

RoundCosts::Terms RoundCosts::mean() const {
  const double n = n_rounds_ > 0 ? static_cast<double>(n_rounds_) : NAN;
  return {sum_.round / n,  sum_.formula / n, sum_.propose / n,
          sum_.verify / n, sum_.upkeep / n,  sum_.host / n};
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
  if (!(speedup >= chain_speedup(low, k, c, v)) || speedup > chain_speedup(high, k, c, v))
    return NAN;
  if (speedup == chain_speedup(low, k, c, v)) return low;
  for (int i = 0; i < 60; ++i) {  // it grows with a
    double middle = (low + high) / 2;
    (chain_speedup(middle, k, c, v) < speedup ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace pf
