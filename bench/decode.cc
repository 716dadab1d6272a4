#include "bench/decode.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/philox.h"
#include "bench/bench_model.h"
#include "bench/driver.h"
#include "bench/kernels.h"

namespace pf {
namespace {

// Bytes of this process that are in memory.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE));
}

std::vector<std::vector<int32_t>> prompts_of(int32_t n, int32_t n_tokens, int32_t vocabulary) {
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(n));
  for (uint32_t p = 0; p < static_cast<uint32_t>(n); ++p)
    for (uint32_t i = 0; i < static_cast<uint32_t>(n_tokens); ++i) {
      uint32_t of = i % std::max(1u, static_cast<uint32_t>(n_tokens) / 2);
      prompts[p].push_back(
          static_cast<int32_t>(philox(p, {of, 0, 0, 0})[0] % static_cast<uint32_t>(vocabulary)));
    }
  return prompts;
}

EngineOptions engine_options(const DecodeOptions& o, const std::string& dtype, int threads) {
  EngineOptions e;
  e.model = o.model;
  if (!o.draft.empty()) e.drafts.push_back({"", o.draft});
  e.quantization = dtype == "bf16" ? "none" : dtype;
  e.threads = threads;
  e.max_num_seqs = std::max(1, *std::max_element(o.batches.begin(), o.batches.end()));
  e.max_model_len = o.n_prompt + o.n_tokens + 1;
  return e;
}

// Wall time of one answer is cut at the first token: what is measured is decoding alone.
Status measure(const DecodeOptions& o, const std::string& dtype, int batch, int k,
               const ProbeMemory& memory, Driver& driver, Report* report) {
  auto prompts = prompts_of(batch, o.n_prompt, driver.vocabulary_size());
  Load probe = read_probe(memory, driver.pool());
  double bytes = static_cast<double>(driver.target().info().bytes_per_step);
  std::vector<Round> rounds;
  std::vector<double> rates;
  DriverRun last;
  for (int i = -1; i < 2 * o.protocol.n_rounds; ++i) {
    if (share_of_probe(rounds, 0).spread.n >= o.protocol.n_rounds) break;
    Round round{{rate_of_slice(probe, o.protocol.slice_s)}, {}};
    Result<DriverRun> run = driver.run(prompts, o.n_tokens, k);
    if (!run.ok()) return run.status();
    round.probes.push_back(rate_of_slice(probe, o.protocol.slice_s));
    last = run.take();
    round.subjects.push_back(bytes * static_cast<double>(last.n_steps) / last.decode_s);
    if (i < 0) continue;  // the first one warms up
    if (is_steady(round.probes))
      rates.push_back(static_cast<double>(last.n_decoded()) / last.decode_s);
    rounds.push_back(std::move(round));
  }
  Kept share = share_of_probe(rounds, 0);
  double rate = rates.empty() ? NAN : spread_of(rates).median;
  std::string model = short_name(o.model);
  report->add("decode",
              {{"model", model},
               {"dtype", dtype},
               {"threads", driver.pool().size()},
               {"sequences", batch},
               {"K", k},
               {"tokens/s", or_null(rate)},
               {"tokens/step", static_cast<double>(last.n_decoded()) / static_cast<double>(batch) /
                                   static_cast<double>(std::max<int64_t>(1, last.n_steps))},
               {"probe GB/s", 1e-9 * rate_of_probe(rounds).median},
               {"weights of read", to_json(share)}});
  if (batch != 1 || k != 0 || (dtype != "bf16" && dtype != "int4") ||
      !is_past_cache(driver.target().info().bytes_per_step))
    return {};
  std::string at = dtype + "." + std::to_string(driver.pool().size()) + "t@" + model;
  report->add(Goal{(dtype == "bf16" ? "C1." : "C2.") + at,
                   "decode through the engine, bytes per token x tokens/s over the read probe",
                   share.median(), dtype == "bf16" ? 0.93 : 0.90, true});
  return {};
}

Status bench_dtype(const DecodeOptions& o, const std::string& dtype, int threads,
                   std::span<const int> cpus, Report* report) {
  double before = resident_bytes(), began = now_s();
  Result<std::unique_ptr<Driver>> driver = Driver::create(engine_options(o, dtype, threads), cpus);
  if (!driver.ok()) return driver.status();
  double loaded = now_s() - began;
  Result<DriverRun> first =
      (*driver)->run(prompts_of(1, o.n_prompt, (*driver)->vocabulary_size()), 1, 0);
  if (!first.ok()) return first.status();
  const BackendInfo& info = (*driver)->target().info();
  double first_s = now_s() - began, resident = resident_bytes() - before;
  // The pool is pages that nobody has written yet, and not in memory, but those of this answer.
  double touched = static_cast<double>(info.kv_bytes) *
                   static_cast<double>((*driver)->n_kv_blocks(o.n_prompt + 1)) /
                   static_cast<double>((*driver)->n_kv_blocks());
  double weights = static_cast<double>(info.weight_bytes);
  report->add("start", {{"dtype", dtype},
                        {"threads", threads},
                        {"load s", loaded},
                        {"first token s", first_s},
                        {"weights MB", 1e-6 * static_cast<double>(info.weight_bytes)},
                        {"KV pool MB", 1e-6 * static_cast<double>(info.kv_bytes)},
                        {"KV touched MB", 1e-6 * touched},
                        {"scratch MB", 1e-6 * static_cast<double>(info.scratch_bytes)},
                        {"resident MB", 1e-6 * resident}});
  std::string at = dtype + "." + std::to_string(threads) + "t@" + short_name(o.model);
  report->add(Goal{"C10." + at, "MB resident beyond weights and the KV of the answer",
                   1e-6 * (resident - weights - touched), 64, false});
  if (std::filesystem::exists(o.model))  // a random model has to be made first
    report->add(
        Goal{"C9." + at, "seconds from loading to the first token behind 64", first_s, 0.5, false});
  ProbeMemory memory(o.probe_bytes);
  for (int batch : o.batches)
    for (int k : o.ks)
      if (Status s = measure(o, dtype, batch, k, memory, **driver, report); !s.ok()) return s;
  return {};
}

}  // namespace

Result<Report> bench_decode(const DecodeOptions& o) {
  Report report("decode");
  report.head()["model"] = o.model;
  report.head()["prompt_tokens"] = o.n_prompt;
  report.head()["tokens"] = o.n_tokens;
  std::vector<int> cpus = usable_cpus();
  for (const std::string& dtype : o.dtypes) {
    if (Result<CpuOptions::Weights> known = weights_of(dtype); !known.ok()) return known.status();
    for (int threads : o.threads)
      if (Status s = bench_dtype(o, dtype, threads, cpus, &report); !s.ok()) return s;
  }
  return report;
}

}  // namespace pf
