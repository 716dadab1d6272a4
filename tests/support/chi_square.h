#pragma once

#include <cmath>
#include <vector>

namespace pf {

// Upper tail of the chi-square distribution: the regularised incomplete gamma Q(dof / 2, x / 2), by
// its series or continued fraction (Abramowitz & Stegun 6.5.29, 6.5.31).
inline double chi_square_tail(double x, double dof) {
  double a = dof / 2, z = x / 2;
  if (z <= 0) return 1;
  double front = std::exp(-z + a * std::log(z) - std::lgamma(a));
  if (z < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < 10000 && term > sum * 1e-16; ++n) sum += term *= z / (a + n);
    return 1 - front * sum;
  }
  double b = z + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < 10000; ++i) {
    double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    double step = d * c;
    h *= step;
    if (std::abs(step - 1) < 1e-15) break;
  }
  return front * h;
}

// p-value of counts `seen` against probabilities `want` (which sum to 1). Cells with an expectation
// below 5 are pooled.
inline double chi_square_p_value(const std::vector<double>& seen, const std::vector<double>& want) {
  double n = 0, x = 0, pooled_seen = 0, pooled_want = 0;
  int cells = 0;
  for (double s : seen) n += s;
  auto cell = [&](double s, double e) {
    x += (s - e) * (s - e) / e;
    ++cells;
  };
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i] * n < 5) {
      pooled_seen += seen[i];
      pooled_want += want[i] * n;
    } else {
      cell(seen[i], want[i] * n);
    }
  }
  if (pooled_want >= 5)
    cell(pooled_seen, pooled_want);
  else if (pooled_want == 0 && pooled_seen > 0)
    return 0;  // what cannot be has happened
  return chi_square_tail(x, cells - 1);
}

}  // namespace pf
