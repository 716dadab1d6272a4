#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

#include "engine/event.h"

namespace pf {

// How one completion ended, for metrics and the access line.
struct CompletionRecord {
  const char* reason = "";  // eos, stop_token, stop_string, length, context_full, time_limit, ...
  int64_t n_generated = 0;
  SpeculationCounts speculation;
  PhaseTimes times;
};

// What the server counts itself, by request. Names and buckets as vLLM's. Any thread.
class Metrics {
 public:
  Metrics(const std::string& version, const std::string& commit);

  void finished(const CompletionRecord& record);
  void token_gap(double seconds) { token_gap_.Observe(seconds); }
  // `reason`: queue_full, loading, draining, unauthenticated, invalid, duplicate.
  void rejected(const char* reason) { rejected_.Add({{"reason", reason}}).Increment(); }
  void write_blocked(double seconds) { write_blocked_.Observe(seconds); }
  void freed(double seconds) { freed_.Observe(seconds); }

  const prometheus::Registry& registry() const { return registry_; }

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>&success_, &rejected_;
  prometheus::Counter& corrupted_;
  prometheus::Histogram &ttft_, &tpot_, &token_gap_, &e2e_, &queue_, &prefill_, &decode_, &freed_,
      &write_blocked_;
};

}  // namespace pf
