#include "bench/plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace pf {
namespace {

constexpr double kWidth = 640, kHeight = 300;
constexpr double kLeft = 64, kRight = 24, kTop = 28, kBottom = 44;               // margins
constexpr const char* kColours[] = {"#1b6ca8", "#6aaede", "#c8553d", "#e59c8b",  // in pairs
                                    "#3a7d44", "#84bf8d", "#7a4e9e", "#b598cc"};

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", x);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text)
    out += c == '&'   ? "&amp;"
           : c == '<' ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const std::string& more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"" +
         more + ">" + escaped(text) + "</text>\n";
}

// Where a value stands in the picture.
struct Frame {
  double x_top = 1, y_top = 1;
  double x(double v) const { return kLeft + v / x_top * (kWidth - kLeft - kRight); }
  double y(double v) const { return kHeight - kBottom - v / y_top * (kHeight - kTop - kBottom); }
};

bool is_drawn(const std::pair<double, double>& p) {
  return std::isfinite(p.first) && std::isfinite(p.second) && p.first >= 0 && p.second >= 0;
}

std::string axes(const Plot& plot, const Frame& f, std::span<const double> x_ticks,
                 std::span<const double> y_ticks) {
  std::string out;
  for (double t : y_ticks) {
    out += "<line x1=\"" + number(kLeft) + "\" x2=\"" + number(kWidth - kRight) + "\" y1=\"" +
           number(f.y(t)) + "\" y2=\"" + number(f.y(t)) + "\" stroke=\"#ddd\"/>\n";
    out += text_at(kLeft - 6, f.y(t) + 4, "end", number(t));
  }
  for (double t : x_ticks) out += text_at(f.x(t), kHeight - kBottom + 16, "middle", number(t));
  out += text_at((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", plot.x_name);
  return out + text_at(kLeft, kTop - 10, "start", plot.y_name);
}

std::string drawn(const Series& s, const Frame& f, const std::string& colour) {
  std::string out, path;
  double bar = 0.6 * (f.x(1) - f.x(0));
  for (const auto& p : s.points) {
    if (!is_drawn(p)) continue;
    std::string x = number(f.x(p.first)), y = number(f.y(p.second));
    if (s.shape == Series::Shape::kLine) {
      path += (path.empty() ? "M" : "L") + x + " " + y;
    } else if (s.shape == Series::Shape::kPoints) {
      out += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"2.5\" fill=\"" + colour + "\"/>\n";
    } else {
      out += "<rect x=\"" + number(f.x(p.first) - bar / 2) + "\" y=\"" + y + "\" width=\"" +
             number(bar) + "\" height=\"" + number(f.y(0) - f.y(p.second)) + "\" fill=\"" + colour +
             "\"/>\n";
    }
  }
  if (!path.empty())
    out +=
        "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2\"/>\n";
  return out;
}

std::string cell_of(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return number(value.get<double>());
  return value.dump();
}

}  // namespace

std::vector<double> axis_ticks(double top, int most) {
  if (!(top > 0) || !std::isfinite(top)) return {0, 1};
  double step = std::pow(10, std::floor(std::log10(top / most)));
  for (double factor : {1.0, 2.0, 5.0, 10.0})
    if (std::ceil(top / (step * factor) - 1e-9) <= most) {
      step *= factor;
      break;
    }
  std::vector<double> ticks;
  for (int i = 0; i <= std::ceil(top / step - 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

std::string svg_of(const Plot& plot) {
  double x_top = 0, y_top = 0;
  bool any = false;
  for (const Series& s : plot.series)
    for (const auto& p : s.points) {
      if (!is_drawn(p)) continue;
      any = true;
      x_top = std::max(x_top, p.first + (s.shape == Series::Shape::kBars ? 0.5 : 0));
      y_top = std::max(y_top, p.second);
    }
  std::string out = "<figure><figcaption>" + escaped(plot.title) +
                    "</figcaption>\n<svg viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) +
                    "\" role=\"img\">\n";
  if (!any)
    return out + text_at(kWidth / 2, kHeight / 2, "middle", "nothing was measured") +
           "</svg></figure>\n";
  std::vector<double> x_ticks = axis_ticks(x_top, 8), y_ticks = axis_ticks(y_top, 5);
  Frame frame{x_ticks.back(), y_ticks.back()};
  out += axes(plot, frame, x_ticks, y_ticks);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    std::string colour = kColours[i % std::size(kColours)];
    out += drawn(plot.series[i], frame, colour);
    out += text_at(kWidth - kRight - 8, kTop + 14 * static_cast<double>(i), "end",
                   plot.series[i].name, " fill=\"" + colour + "\"");
  }
  return out + "</svg></figure>\n";
}

std::string html_page(const std::string& title, const Json& figures, std::span<const Plot> plots) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escaped(title) +
      "</title>\n<style>body{font:14px sans-serif;margin:2em auto;max-width:90em;color:#222}"
      "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(30em,1fr));gap:1em}"
      "figure{margin:0;border:1px solid #ccc;padding:.5em}svg text{font:12px sans-serif}"
      "table{border-collapse:collapse}td{padding:.1em 1em .1em 0}td+td{text-align:right}"
      "</style></head>\n<body><h1>" +
      escaped(title) + "</h1>\n<main>\n";
  for (const Plot& plot : plots) out += svg_of(plot);
  out += "</main>\n<table>\n";
  for (const auto& [key, value] : figures.items())
    out += "<tr><td>" + escaped(key) + "</td><td>" + escaped(cell_of(value)) + "</td></tr>\n";
  return out + "</table></body></html>\n";
}

Status write_page(const std::string& path, const std::string& title, const Json& figures,
                  std::span<const Plot> plots) {
  if (path.empty()) return {};
  std::ofstream file(path);
  file << html_page(title, figures, plots);
  if (!file.flush()) return invalid("--html " + path + " cannot be written");
  return {};
}

}  // namespace pf
