#pragma once

#include <span>
#include <vector>

namespace pf {

// What is said of repeated measurements: the median and the quartiles around it.
struct Spread {
  double median = 0, q1 = 0, q3 = 0;
  int n = 0;

  double iqr() const { return q3 - q1; }
};

// The value below which the part p of all values lies, by linear interpolation between ranks
// (Hyndman and Fan 1996, type 7). No values: 0.
double quantile_of(std::vector<double> values, double p);

// Quartiles as quantile_of gives them. No values: zeros.
Spread spread_of(std::vector<double> values);

// One turn of the alternating protocol: probe, subject, probe, subject, ..., probe. All are rates
// (work per second), so a share is a quotient. probes.size() == subjects.size() + 1.
struct Round {
  std::vector<double> probes, subjects;
};

// A machine that is shared changes under the measurement. What was measured while the probes beside
// it moved by more than this part of the slowest one says nothing.
inline constexpr double kMostProbeMove = 0.10;

// False when the fastest probe is more than kMostProbeMove faster than the slowest.
bool is_steady(std::span<const double> probes);

struct Kept {
  Spread spread;
  int n_dropped = 0;  // rounds whose probe moved
};

// Subject over the mean of the probes right before and behind it.
Kept share_of_probe(std::span<const Round> rounds, size_t subject);
// Subject a over subject b of the same round; dropped when any probe from the first of the two to
// the last moved.
Kept ratio_of_subjects(std::span<const Round> rounds, size_t a, size_t b);
// The subject's own rate, over the rounds that share_of_probe keeps.
Spread rate_of_subject(std::span<const Round> rounds, size_t subject);
Spread rate_of_probe(std::span<const Round> rounds);

// b of cost = a n^b by least squares of the logarithms. Requires: two or more sizes, all > 0.
double growth_exponent(std::span<const double> sizes, std::span<const double> costs);

}  // namespace pf
