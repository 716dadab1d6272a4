#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/statistics.h"

namespace pf {

using Json = nlohmann::ordered_json;

// Something that the design asks for, and what was measured.
struct Goal {
  std::string id, name;
  double value = 0, goal = 0;
  bool at_least = true;                                                   // else at most
  bool pass() const { return at_least ? value >= goal : value <= goal; }  // NaN: no
};

// All that one command found: figures by section and goals; a table for people, JSON for programs.
class Report {
 public:
  explicit Report(std::string command);

  Json& head() { return json_; }  // model, machine, probes
  // Adds a line to a section; numbers and strings by key. Lines of a section have the same keys.
  void add(const std::string& section, Json line);
  void add(Goal goal);

  const std::vector<Goal>& goals() const { return goals_; }
  Json json() const;          // {"command", ..., "sections": {...}, "goals": [...]}
  std::string table() const;  // every section, then the goals with their marks
  Status write(const std::string& path) const;  // the JSON; "" writes nothing

 private:
  Json json_, sections_;
  std::vector<Goal> goals_;
};

Json or_null(double x);          // null for NaN and infinity, which JSON does not know
Json to_json(const Kept& kept);  // {"median", "q1", "q3", "pairs", "dropped"}

}  // namespace pf
