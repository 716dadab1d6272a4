#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/report.h"

namespace pf {

struct DecodeOptions {
  std::string model = "smollm2-135m";  // a file, a folder or a synthetic shape
  std::string draft;                   // a draft model; empty: n-grams only
  std::vector<std::string> dtypes = {"bf16", "int4"};
  std::vector<int> threads;
  std::vector<int> batches = {1, 8, 32};
  std::vector<int> ks = {0, 4};
  int n_prompt = 64, n_tokens = 16;
  Protocol protocol{15, 0.010};
  size_t probe_bytes = size_t{512} << 20;
};

// Tokens per second of whole answers through the engine's step, by threads, dtype, sequences and
// draft length, with the read probe on both sides of each; time from start to the first token and
// resident memory. Prompts are random tokens whose second half repeats the first.
Result<Report> bench_decode(const DecodeOptions& options);

// Answers requests for measurements, one JSON object a line, until the input ends. So a script can
// alternate between this process and another one, each with its model loaded.
//   {"op": "info"}    -> dtype, device, bytes_per_step, threads
//   {"op": "decode", "prompts": [[ids], ...], "n": 128, "k": 0}  k < 0: the server's choice
//                     -> prefill_s, decode_s, steps, drafted, accepted, tokens
//   {"op": "rows", "m": 8, "seconds": 0.05}  -> step_s of m sequences together
//   {"op": "probe", "seconds": 0.05}         -> read_bytes_per_s of all threads
//   anything else     -> {"error": what was wrong}
struct WorkerOptions {
  std::string model, draft, dtype = "bf16";
  std::string speculation = "auto";  // a comma list, as the server's
  int threads = 0, num_speculative_tokens = 5;
};
Status run_worker(const WorkerOptions& options);

}  // namespace pf
