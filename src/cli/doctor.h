#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_facts.h"

namespace pf {

// What a machine offers, as far as the server cares.
struct MachineFacts {
  std::string cpu;                        // its name
  std::vector<std::string> cpu_features;  // of those that the kernels can use
  std::string kernels;                    // which of the CPU kernels run: "avx512", ...
  int32_t n_cpus = 0;                     // that this process may run on
  double cpu_quota = 0;                   // of a control group, in CPUs; 0: none
  int64_t memory_bytes = 0;               // free
  int64_t max_open_files = 0;             // hard limit; the server raises its own to it
  int64_t locked_bytes = 0;               // RLIMIT_MEMLOCK; -1: no limit
  std::string huge_pages;                 // "always", "madvise", "never"; empty: not told
  CudaFacts cuda;
  std::vector<std::pair<std::string, std::string>> libraries;  // name, version
};

struct Finding {
  enum class Level { kFine, kAdvice, kBad };
  Level level = Level::kFine;
  std::string what, value;
  std::string advice;  // what to do; empty where all is fine
};

MachineFacts read_machine();
std::vector<Finding> examine(const MachineFacts& machine);
// One line a finding, its advice below it.
std::string print(const std::vector<Finding>& findings);

// The word in brackets of "always [madvise] never".
std::string chosen_word(const std::string& words);
// Of cpu.max ("150000 100000", "max 100000") in CPUs; 0: none.
double quota_of(const std::string& cpu_max);

}  // namespace pf
