#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/report.h"

namespace pf {

// One request as the client saw it; seconds since the load began.
struct RequestRecord {
  enum class Outcome { kCompleted, kCancelled, kFailed };
  Outcome outcome = Outcome::kFailed;
  double due_s = 0;    // when the load said that it comes
  double sent_s = 0;   // later when max_concurrency held it back: the tool's own queue
  double first_s = 0;  // its first token came
  double end_s = 0;
  std::vector<double> message_s;             // each message with tokens, the first one too
  int64_t n_prompt = 0, n_tokens = 0;        // as the server counts
  std::string error;                         // of a failed one
  std::vector<int64_t> message_tokens = {};  // of each message
  // As the server counts them with the last message.
  int64_t n_rounds = 0, n_drafts = 0;                      // target passes, and those with a draft
  int64_t n_drafted = 0, n_accepted = 0;                   // tokens
  std::vector<int64_t> drafted_at = {}, accepted_at = {};  // by depth
  double alpha = 1;                                        // of the last round

  double ttft_s() const { return first_s - sent_s; }
  double e2e_s() const { return end_s - sent_s; }
  double tpot_s() const {  // 0 where there is one token
    return n_tokens > 1 ? (end_s - first_s) / static_cast<double>(n_tokens - 1) : 0;
  }
};

// What a good answer is; 0: any.
struct Slo {
  double ttft_ms = 0, tpot_ms = 0, e2el_ms = 0;
  bool any() const { return ttft_ms > 0 || tpot_ms > 0 || e2el_ms > 0; }
  bool met_by(const RequestRecord& r) const;
};
// "ttft:500 tpot:30 e2el:2000", or a preset: mlperf-8b-server (2000, 100) and mlperf-8b-interactive
// (500, 30), MLPerf Inference 5.1's limits for Llama 3.1 8B. Refuses anything else.
Result<Slo> slo_of(const std::string& text);

// When n requests come: the first at once, then gaps of a gamma distribution of mean 1 / rate and
// shape `burstiness` (1: Poisson; below: bursts; above: even). rate 0: all at once. Non-decreasing.
std::vector<double> arrival_times(int n, double rate, double burstiness, uint64_t seed);

// The same with a rate that grows from request to request, linearly from `from` to `to`.
std::vector<double> ramp_times(int n, double from, double to, double burstiness, uint64_t seed);
struct Ramp {
  double from = 0, to = 0;
};
Result<Ramp> ramp_of(const std::string& text);  // "FROM:TO", both above 0

// Ten parts of a ramp, or fewer, in the order of the requests: asked and reached rates, latencies.
std::vector<Json> ramp_lines(std::span<const RequestRecord> records);

// Whether a load says nothing: no request was answered, or, if `strict`, one failed. Of the figures
// of serve_figures, and of "failed_in_all_loads" where several were sent.
bool load_failed(const Json& figures, bool strict);

// USD per million requests, output tokens and all tokens, for a machine of so much an hour; null
// where there were none.
Json cost_figures(const Json& figures, double usd_per_hour);

// The keys of `vllm bench serve`, and client_queue_ms beside them: mean, median, std and p99 of
// ttft, tpot, itl (between messages) and e2el over completed requests, throughput, goodput; and
// what came of drafts (null where nobody drafted).
// Figures of what did not happen are null: those of answers where none came.
Json serve_figures(std::span<const RequestRecord> records, double duration_s, const Slo& slo);

}  // namespace pf
