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
  // prompts-file: one text a line, from the first on again when they run out. sonnet: lines of a
  // poem, the first prefix_len tokens of them in every prompt.
  std::string dataset = "random", prompts_file, sonnet_file = "bench/prompts/sonnet.txt";
  int num_prompts = -1, max_concurrency = -1;  // 0: no limit
  double request_rate = -1;                    // per second; 0: all at once
  double burstiness = 1;
  std::string ramp;  // "FROM:TO": requests per second grow from the first to the last request
  int input_len = -1, output_len = -1, prefix_len = -1, n_prefixes = 4;
  double cancel_rate = 0;              // of the requests: cancelled at half of their tokens
  std::string speculation = "server";  // or off
  std::string goodput;                 // see slo_of
  int compare = 0;                     // > 0: so many loads with speculation between ones without
  double cost_per_hour = 0;            // USD of the machine; 0: not asked
  std::string html;                    // a page with plots of the (last) load; "": none
  uint64_t seed = 1;
};

// Sends it all and waits for the last answer. Errors: no server, a flag that makes no sense, no
// prompts, lengths that the server's context does not hold (a scenario's own prompt is cut to it:
// "input_len" beside "input_len_asked"). A request that fails is counted and its first reason is in
// the report. To compare, the same load is sent without and with speculation in turns; the figures
// are then the last one's with.
Result<Report> bench_serve(const ServeOptions& options);

}  // namespace pf
