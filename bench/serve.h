#pragma once

#include <string>
#include <vector>

#include "bench/report.h"
#include "bench/serve_figures.h"

namespace pf {

// Load on a running server over gRPC. Fields that are not set (< 0) take the scenario's value.
struct ServeOptions {
  std::string target = "127.0.0.1:50051";
  // long: one request at a time, 128K prompt tokens or what the context holds. short: 1,000
  // requests per second of 32 tokens, Poisson. mixed: 7 long to 3 short. custom: as the flags say.
  std::string scenario = "custom";
  // random: token ids. prefix-repetition: the same, behind one of n_prefixes common beginnings.
  // prompts-file: one text a line, from the first on again when they run out.
  std::string dataset = "random", prompts_file;
  int num_prompts = -1, max_concurrency = -1;  // 0: no limit
  double request_rate = -1;                    // per second; 0: all at once
  double burstiness = 1;
  int input_len = -1, output_len = -1, prefix_len = 256, n_prefixes = 4;
  double cancel_rate = 0;              // of the requests: cancelled at half of their tokens
  std::string speculation = "server";  // or off
  std::string goodput;                 // see slo_of
  uint64_t seed = 1;
};

// Sends it all and waits for the last answer. Errors: no server, a flag that makes no sense, no
// prompts. A request that fails is counted and its first reason is in the report.
Result<Report> bench_serve(const ServeOptions& options);

}  // namespace pf
