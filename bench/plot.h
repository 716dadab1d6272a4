#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/report.h"

namespace pf {

struct Series {
  enum class Shape { kLine, kPoints, kBars };
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y); what is not finite is left out
  Shape shape = Shape::kLine;
};

// A diagram from (0 or the least x, 0) on; without points it says so.
struct Plot {
  std::string title, x_name, y_name;
  std::vector<Series> series;
};

// Steps of 1, 2 or 5 times a power of ten, at most `most` of them from 0 up to `top` or just
// beyond.
std::vector<double> axis_ticks(double top, int most);

std::string svg_of(const Plot& plot);

// One file that needs nothing else: plots as SVG, figures as a table. No script, no address.
std::string html_page(const std::string& title, const Json& figures, std::span<const Plot> plots);
// The same into a file; "" writes nothing. Errors: it cannot be written.
Status write_page(const std::string& path, const std::string& title, const Json& figures,
                  std::span<const Plot> plots);

}  // namespace pf
