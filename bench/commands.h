#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "base/status.h"
#include "bench/report.h"

namespace pf {

// Exit codes as the pilotfish command's: 0, 1 (a goal was missed, with --strict), 2 (usage or
// file).
inline constexpr int kDone = 0, kGoalMissed = 1, kBadUsage = 2, kBenchFault = 70;

using BenchRun = std::function<int()>;
void declare_kernels(CLI::App* app, BenchRun* run);
void declare_decode(CLI::App* app, BenchRun* run);
void declare_serve_load(CLI::App* app, BenchRun* run);
void declare_speculation(CLI::App* app, BenchRun* run);
void declare_worker(CLI::App* app, BenchRun* run);

// What every command does with its report: the table on stdout, the JSON where asked.
struct Output {
  std::string json;
  bool strict = false;
  void declare(CLI::App* command);
  Status check() const;  // that it can be written: before anything is measured
  int finish(const Result<Report>& report) const;
};

// 1 and as many as the process may use CPUs.
std::vector<int> default_threads();

}  // namespace pf
