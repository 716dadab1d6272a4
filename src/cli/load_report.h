#pragma once

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

#include "base/progress.h"
#include "server/log.h"

namespace pf {

// "loading: 42 %, 13.6 of 32.2 GB checked or packed, 1.93 GB/s": weights go through both, so a file
// of 16.1 GB counts twice. Requires: seconds > 0.
std::string load_line(int64_t done_bytes, int64_t total_bytes, double seconds);

// Says how far loading has come, once that takes longer than kQuick: a line of a terminal that is
// written over every kBetweenWrites and taken away at the end, or else lines of the log, where
// there is one, every kBetweenLines. One thread.
class LoadReport {
 public:
  static constexpr double kQuick = 1.0, kBetweenLines = 5.0, kBetweenWrites = 0.1;  // seconds

  // What is not null outlives this.
  LoadReport(const Progress& progress, std::FILE* terminal, Log* log)
      : progress_(progress), terminal_(terminal), log_(log) {}
  ~LoadReport() { end(); }
  LoadReport(const LoadReport&) = delete;
  LoadReport& operator=(const LoadReport&) = delete;

  void tick(double seconds);  // since loading began; rising
  void end();                 // loaded or refused: what comes next begins a line of its own

 private:
  const Progress& progress_;
  std::FILE* terminal_;
  Log* log_;
  double next_line_ = kQuick;
  bool on_screen_ = false;
};

// stderr where it is a terminal, else null.
std::FILE* terminal();

// The same on a thread of its own, for commands whose one thread loads; until it goes away. Their
// stderr, sent elsewhere, holds warnings and errors only.
class LoadWatch {
 public:
  explicit LoadWatch(const Progress& progress);
  ~LoadWatch();

 private:
  LoadReport report_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace pf
