#pragma once

#include <span>
#include <vector>

#include "bench/report.h"

namespace pf {

// The geometric mean of ratios and its 95 % confidence interval: Student's t of their logarithms,
// n - 1 degrees of freedom. Fewer than two: the ends are no numbers. Ratios that are not above 0
// are left out.
struct RatioInterval {
  double ratio = 0, low = 0, high = 0;
  int n = 0;
};
RatioInterval ratio_interval(std::span<const double> ratios);

// Two-sided 95 % quantile of Student's t. Requires: degrees >= 1.
double student_t_95(int degrees);

// `loads`: figures (serve_figures) of the same load without and with speculation in turns: off, on,
// off, ..., off. One line per figure: medians of both kinds, on over the mean of the two beside it
// as a ratio with its interval. A turn whose two sides differ in throughput by more than 10 % is
// dropped and counted.
std::vector<Json> compare_lines(std::span<const Json> loads);

}  // namespace pf
