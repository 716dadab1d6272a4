#include "server/metrics.h"

#include <cstring>

namespace pf {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Histogram;
using prometheus::Registry;

const Histogram::BucketBoundaries kFirstToken{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                              0.25,  0.5,   0.75, 1.0,  2.5,  5.0,  7.5,  10,
                                              20,    40,    80,   160,  640,  2560};
const Histogram::BucketBoundaries kTokenGap{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                            0.75, 1.0,   2.5,  5.0,   7.5, 10,   20,  40,  80};
const Histogram::BucketBoundaries kRequest{0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5,   10,   15,  20,
                                           30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
const Histogram::BucketBoundaries kShort{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05,
                                         0.1,    0.5,    1,     5,     30};

Histogram& histogram(Registry& r, const char* name, const char* help,
                     const Histogram::BucketBoundaries& buckets) {
  return BuildHistogram().Name(name).Help(help).Register(r).Add({}, buckets);
}

double seconds(int64_t from_us, int64_t to_us) {
  return 1e-6 * static_cast<double>(to_us - from_us);
}

const char* vllm_reason(const char* reason) {
  for (const char* stop : {"eos", "stop_token", "stop_string"})
    if (std::strcmp(reason, stop) == 0) return "stop";
  for (const char* length : {"length", "context_full"})
    if (std::strcmp(reason, length) == 0) return "length";
  return "abort";
}

}  // namespace

Metrics::Metrics(const std::string& version, const std::string& commit)
    : success_(BuildCounter()
                   .Name("pilotfish_request_success_total")
                   .Help("Completions that ended, by reason.")
                   .Register(registry_)),
      rejected_(BuildCounter()
                    .Name("pilotfish_admission_rejections_total")
                    .Help("Calls that were refused before the engine saw them, by reason.")
                    .Register(registry_)),
      corrupted_(BuildCounter()
                     .Name("pilotfish_corrupted_requests_total")
                     .Help("Completions that ended because logits were not finite.")
                     .Register(registry_)
                     .Add({})),
      ttft_(histogram(registry_, "pilotfish_time_to_first_token_seconds",
                      "From arrival to the first token.", kFirstToken)),
      tpot_(histogram(registry_, "pilotfish_time_per_output_token_seconds",
                      "Mean time per token behind the first, of one completion.", kTokenGap)),
      token_gap_(histogram(registry_, "pilotfish_inter_token_latency_seconds",
                           "Between the rounds of one request that gave tokens.", kTokenGap)),
      e2e_(histogram(registry_, "pilotfish_e2e_request_latency_seconds", "From arrival to the end.",
                     kRequest)),
      queue_(histogram(registry_, "pilotfish_request_queue_time_seconds",
                       "From arrival to the first step.", kRequest)),
      prefill_(histogram(registry_, "pilotfish_request_prefill_time_seconds",
                         "From the first step to the first token.", kRequest)),
      decode_(histogram(registry_, "pilotfish_request_decode_time_seconds",
                        "From the first token to the end.", kRequest)),
      freed_(histogram(registry_, "pilotfish_cancelled_to_freed_seconds",
                       "From a cancel to the end in the engine.", kShort)),
      write_blocked_(histogram(registry_, "pilotfish_stream_write_blocked_seconds",
                               "How long a message waited for a client to read.", kShort)) {
  for (const char* reason : {"stop", "length", "abort"})
    success_.Add({{"finished_reason", reason}});
  for (const char* reason :
       {"queue_full", "loading", "draining", "unauthenticated", "invalid", "duplicate"})
    rejected_.Add({{"reason", reason}});
  BuildGauge()
      .Name("pilotfish_build_info")
      .Help("Always 1; what is running.")
      .Register(registry_)
      .Add({{"version", version}, {"commit", commit}})
      .Set(1);
}

void Metrics::finished(const CompletionRecord& r) {
  if (std::strcmp(r.reason, "corrupted") == 0) {
    corrupted_.Increment();
  } else {
    success_.Add({{"finished_reason", vllm_reason(r.reason)}}).Increment();
  }
  const PhaseTimes& t = r.times;
  e2e_.Observe(seconds(t.arrival_us, t.end_us));
  if (t.first_scheduled_us >= 0) queue_.Observe(seconds(t.arrival_us, t.first_scheduled_us));
  if (t.first_token_us < 0) return;
  prefill_.Observe(seconds(t.first_scheduled_us, t.first_token_us));
  ttft_.Observe(seconds(t.arrival_us, t.first_token_us));
  decode_.Observe(seconds(t.first_token_us, t.end_us));
  if (r.n_generated > 1)
    tpot_.Observe(seconds(t.first_token_us, t.end_us) / static_cast<double>(r.n_generated - 1));
}

}  // namespace pf
