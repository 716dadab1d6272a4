#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace pf {
namespace {

double at_rank(const std::vector<double>& sorted, double rank) {
  size_t below = static_cast<size_t>(rank);
  size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - std::floor(rank)) * (sorted[above] - sorted[below]);
}

}  // namespace

double quantile_of(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return at_rank(values, p * static_cast<double>(values.size() - 1));
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  double last = static_cast<double>(values.size() - 1);
  return {at_rank(values, 0.5 * last), at_rank(values, 0.25 * last), at_rank(values, 0.75 * last),
          static_cast<int>(values.size())};
}

bool is_steady(std::span<const double> probes) {
  auto [least, most] = std::minmax_element(probes.begin(), probes.end());
  return *most <= *least * (1 + kMostProbeMove);
}

Kept share_of_probe(std::span<const Round> rounds, size_t subject) {
  Kept kept;
  std::vector<double> shares;
  for (const Round& r : rounds) {
    if (is_steady(std::span(r.probes).subspan(subject, 2)))
      shares.push_back(r.subjects[subject] / (0.5 * (r.probes[subject] + r.probes[subject + 1])));
    else
      ++kept.n_dropped;
  }
  kept.spread = spread_of(std::move(shares));
  return kept;
}

Kept ratio_of_subjects(std::span<const Round> rounds, size_t a, size_t b) {
  Kept kept;
  std::vector<double> ratios;
  size_t first = std::min(a, b), last = std::max(a, b);
  for (const Round& r : rounds) {
    if (is_steady(std::span(r.probes).subspan(first, last - first + 2)))
      ratios.push_back(r.subjects[a] / r.subjects[b]);
    else
      ++kept.n_dropped;
  }
  kept.spread = spread_of(std::move(ratios));
  return kept;
}

Spread rate_of_subject(std::span<const Round> rounds, size_t subject) {
  std::vector<double> rates;
  for (const Round& r : rounds)
    if (is_steady(std::span(r.probes).subspan(subject, 2))) rates.push_back(r.subjects[subject]);
  return spread_of(std::move(rates));
}

Spread rate_of_probe(std::span<const Round> rounds) {
  std::vector<double> rates;
  for (const Round& r : rounds) rates.insert(rates.end(), r.probes.begin(), r.probes.end());
  return spread_of(std::move(rates));
}

double growth_exponent(std::span<const double> sizes, std::span<const double> costs) {
  check(sizes.size() >= 2 && sizes.size() == costs.size(), "an exponent needs two sizes");
  double n = static_cast<double>(sizes.size()), x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    double u = std::log(sizes[i]), v = std::log(costs[i]);
    x += u, y += v, xx += u * u, xy += u * v;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

}  // namespace pf
