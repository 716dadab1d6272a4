#include "bench/report.h"

#include <cmath>
#include <cstdio>
#include <fstream>

namespace pf {
namespace {

std::string cell_of(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (value.is_object()) return cell_of(value.value("median", Json(nullptr)));
  double x = value.get<double>();
  char text[32];
  std::snprintf(text, sizeof(text), std::fabs(x) >= 1e4 ? "%.0f" : "%.4g", x);
  return text;
}

void append_padded(std::string text, size_t width, bool left, std::string* out) {
  std::string fill(width > text.size() ? width - text.size() : 0, ' ');
  *out += left ? text + fill : fill + text;
}

std::string table_of(const Json& lines) {
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& [key, value] : lines[0].items()) rows[0].push_back(key);
  for (const Json& line : lines) {
    rows.emplace_back();
    for (const auto& [key, value] : line.items()) rows.back().push_back(cell_of(value));
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  std::vector<bool> is_text(rows[0].size(), false);  // stands on the left
  for (const auto& row : rows)
    for (size_t c = 0; c < widths.size() && c < row.size(); ++c)
      widths[c] = std::max(widths[c], row[c].size());
  size_t column = 0;
  for (const auto& [key, value] : lines[0].items()) is_text[column++] = value.is_string();
  std::string out;
  for (const auto& row : rows) {
    for (size_t c = 0; c < widths.size() && c < row.size(); ++c) {
      if (c > 0) out += "  ";
      append_padded(row[c], widths[c], is_text[c], &out);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  return out;
}

}  // namespace

Json or_null(double x) { return std::isfinite(x) ? Json(x) : Json(); }

Json to_json(const Kept& kept) {
  if (kept.spread.n == 0)
    return {{"median", nullptr},
            {"q1", nullptr},
            {"q3", nullptr},
            {"pairs", 0},
            {"dropped", kept.n_dropped}};
  return {{"median", or_null(kept.spread.median)},
          {"q1", or_null(kept.spread.q1)},
          {"q3", or_null(kept.spread.q3)},
          {"pairs", kept.spread.n},
          {"dropped", kept.n_dropped}};
}

Report::Report(std::string command) { json_["command"] = std::move(command); }

void Report::add(const std::string& section, Json line) {
  sections_[section].push_back(std::move(line));
}

void Report::add(Goal goal) { goals_.push_back(std::move(goal)); }

Json Report::json() const {
  Json out = json_;
  out["sections"] = sections_.is_null() ? Json::object() : sections_;
  out["goals"] = Json::array();
  for (const Goal& g : goals_)
    out["goals"].push_back({{"id", g.id},
                            {"name", g.name},
                            {"value", or_null(g.value)},
                            {"goal", or_null(g.goal)},
                            {"at_least", g.at_least},
                            {"pass", g.pass()}});
  return out;
}

std::string Report::table() const {
  std::string out;
  for (const auto& [key, value] : json_.items())
    out += key + ": " + (value.is_primitive() ? cell_of(value) : value.dump()) + "\n";
  for (const auto& [name, lines] : sections_.items()) out += "\n" + name + "\n" + table_of(lines);
  if (goals_.empty()) return out;
  Json lines;
  for (const Goal& g : goals_)
    lines.push_back({{"goal", g.id},
                     {"value", or_null(g.value)},
                     {"asked", (g.at_least ? ">= " : "<= ") + cell_of(g.goal)},
                     {"met", std::isnan(g.value) ? Json() : Json(g.pass())},
                     {"what", g.name}});
  return out + "\ngoals\n" + table_of(lines);
}

Status Report::write(const std::string& path) const {
  if (path.empty()) return {};
  std::ofstream file(path);
  file << json().dump(1) << "\n";
  if (!file.flush()) return invalid("--json " + path + " cannot be written");
  return {};
}

}  // namespace pf
