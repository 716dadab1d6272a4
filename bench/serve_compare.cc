#include "bench/serve_compare.h"

#include <cmath>

#include "base/check.h"
#include "bench/statistics.h"

namespace pf {
namespace {

constexpr const char* kCompared[] = {"request_throughput",
                                     "output_throughput",
                                     "mean_ttft_ms",
                                     "p99_ttft_ms",
                                     "mean_tpot_ms",
                                     "median_tpot_ms",
                                     "p99_tpot_ms",
                                     "mean_e2el_ms",
                                     "p99_e2el_ms",
                                     "request_goodput",
                                     "cost_per_million_output_tokens"};

double value_of(const Json& load, const char* key) {
  auto found = load.find(key);
  return found != load.end() && found->is_number() ? found->get<double>() : NAN;
}

}  // namespace

double student_t_95(int degrees) {
  check(degrees >= 1, "Student's t needs a degree of freedom");
  constexpr double kT[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                           2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                           2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  constexpr int kKnown = static_cast<int>(std::size(kT));
  // Beyond the table: the normal quantile and the first terms of its expansion in 1 / degrees.
  constexpr double z = 1.959964;
  if (degrees > kKnown)
    return z + (z * z * z + z) / (4.0 * degrees) +
           (5 * std::pow(z, 5) + 16 * z * z * z + 3 * z) / (96.0 * degrees * degrees);
  return kT[degrees - 1];
}

RatioInterval ratio_interval(std::span<const double> ratios) {
  std::vector<double> logs;
  for (double r : ratios)
    if (r > 0 && std::isfinite(r)) logs.push_back(std::log(r));
  RatioInterval out{NAN, NAN, NAN, static_cast<int>(logs.size())};
  if (logs.empty()) return out;
  double mean = 0, squares = 0;
  for (double x : logs) mean += x / static_cast<double>(logs.size());
  for (double x : logs) squares += (x - mean) * (x - mean);
  out.ratio = std::exp(mean);
  if (logs.size() < 2) return out;
  double n = static_cast<double>(logs.size());
  double half = student_t_95(out.n - 1) * std::sqrt(squares / (n - 1) / n);
  out.low = std::exp(mean - half);
  out.high = std::exp(mean + half);
  return out;
}

std::vector<Json> compare_lines(std::span<const Json> loads) {
  std::vector<Json> lines;
  for (const char* key : kCompared) {
    std::vector<double> off, on, ratios;
    int n_dropped = 0;
    for (size_t i = 0; i < loads.size(); ++i) {
      double value = value_of(loads[i], key);
      if (std::isfinite(value)) (i % 2 == 0 ? off : on).push_back(value);
      if (i % 2 == 0 || i + 1 >= loads.size()) continue;
      double sides[] = {value_of(loads[i - 1], "output_throughput"),
                        value_of(loads[i + 1], "output_throughput")};
      if (is_steady(sides))
        ratios.push_back(value / ((value_of(loads[i - 1], key) + value_of(loads[i + 1], key)) / 2));
      else
        ++n_dropped;
    }
    if (on.empty()) continue;
    RatioInterval r = ratio_interval(ratios);
    lines.push_back({{"figure", key},
                     {"off", or_null(quantile_of(off, 0.5))},
                     {"on", or_null(quantile_of(on, 0.5))},
                     {"on/off", or_null(r.ratio)},
                     {"low", or_null(r.low)},
                     {"high", or_null(r.high)},
                     {"pairs", r.n},
                     {"dropped", n_dropped}});
  }
  return lines;
}

}  // namespace pf
