#include "server/engine_metrics.h"

#include <cmath>

namespace pf {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families {
 public:
  void gauge(const char* name, const char* help, double value) {
    family(name, help, MetricType::Gauge).metric.push_back(metric(MetricType::Gauge, value));
  }
  void counter(const char* name, const char* help, double value) {
    family(name, help, MetricType::Counter).metric.push_back(metric(MetricType::Counter, value));
  }
  MetricFamily& family(const std::string& name, const char* help, MetricType type) {
    all.push_back({name, help, type, {}});
    return all.back();
  }
  static ClientMetric metric(MetricType type, double value,
                             std::vector<ClientMetric::Label> labels = {}) {
    ClientMetric m;
    m.label = std::move(labels);
    (type == MetricType::Gauge ? m.gauge.value : m.counter.value) = value;
    return m;
  }
  std::vector<MetricFamily> all;
};

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

void add_load(const Snapshot& s, Families* f) {
  f->gauge("pilotfish_num_requests_running", "Sequences that run.", s.n_running);
  f->gauge("pilotfish_num_requests_waiting", "Sequences that wait.", s.n_waiting);
  f->gauge("pilotfish_kv_cache_usage_perc",
           "Share of KV blocks that running sequences hold (1 = all).",
           ratio(s.kv_blocks_in_use, s.kv_blocks_total));
  f->counter("pilotfish_prompt_tokens_total", "Prompt tokens run.",
             static_cast<double>(s.n_prompt_tokens));
  f->counter("pilotfish_generation_tokens_total", "Tokens generated.",
             static_cast<double>(s.n_generated_tokens));
  f->counter("pilotfish_num_preemptions_total", "Sequences that gave their blocks back.",
             static_cast<double>(s.n_preemptions));
  f->counter("pilotfish_prefix_cache_queries_total", "Prompt tokens looked up.",
             static_cast<double>(s.n_prefix_queried_tokens));
  f->counter("pilotfish_prefix_cache_hits_total", "Prompt tokens found.",
             static_cast<double>(s.n_prefix_hit_tokens));
}

void add_speculation(const Snapshot& s, const EngineInfo& info, Families* f) {
  f->counter("pilotfish_spec_decode_num_drafts_total", "Rounds with a draft.",
             static_cast<double>(s.n_draft_rounds));
  f->counter("pilotfish_spec_decode_num_draft_tokens_total", "Tokens drafted.",
             static_cast<double>(s.n_drafted));
  f->counter("pilotfish_spec_decode_num_accepted_tokens_total", "Drafted tokens kept.",
             static_cast<double>(s.n_accepted));
  MetricFamily& at = f->family("pilotfish_spec_decode_num_accepted_tokens_per_pos_total",
                               "Drafted tokens kept, by position.", MetricType::Counter);
  for (size_t i = 0; i < s.accepted_at.size(); ++i)
    at.metric.push_back(Families::metric(MetricType::Counter, static_cast<double>(s.accepted_at[i]),
                                         {{"position", std::to_string(i)}}));
  MetricFamily& by =
      f->family("pilotfish_drafter_rounds_total", "Rounds, by drafter.", MetricType::Counter);
  for (size_t i = 0; i < info.drafters.size(); ++i) {
    double n = i < s.rounds_per_drafter.size() ? static_cast<double>(s.rounds_per_drafter[i]) : 0;
    by.metric.push_back(
        Families::metric(MetricType::Counter, n, {{"drafter", info.drafters[i].name}}));
  }
}

void add_recent(const Snapshot& s, const Snapshot& before, Families* f) {
  auto since = [](auto now, auto then) { return static_cast<double>(now - then); };
  double drafted = since(s.n_drafted, before.n_drafted);
  double accept_rate = ratio(since(s.n_accepted, before.n_accepted), drafted);
  double fallbacks = static_cast<double>(s.n_fallbacks);
  for (const char* prefix : {"pilotfish_", ""}) {
    std::string name(prefix);
    f->gauge((name + "cod_accept_rate").c_str(), "Share of drafted tokens kept, last minute.",
             accept_rate);
    f->gauge((name + "cod_draft_latency_p99").c_str(),
             "99th percentile of the drafting time of a step, seconds, last minute.",
             s.draft_times.quantile_since(before.draft_times, 0.99));
    f->counter((name + "cod_fallback_count_total").c_str(),
               "Rounds in which no draft token was kept.", fallbacks);
  }
  f->gauge("pilotfish_cod_draft_latency_p50",
           "Median drafting time of a step, seconds, last minute.",
           s.draft_times.quantile_since(before.draft_times, 0.5));
  f->gauge("pilotfish_draft_length", "Mean tokens drafted in a round with a draft, last minute.",
           ratio(drafted, since(s.n_draft_rounds, before.n_draft_rounds)));
  double draft = since(s.draft_seconds, before.draft_seconds);
  f->gauge("pilotfish_draft_time_share", "Share of step time spent drafting, last minute.",
           ratio(draft, draft + since(s.target_seconds, before.target_seconds) +
                            since(s.other_seconds, before.other_seconds)));
  f->gauge("pilotfish_speculation_speedup_ratio",
           "Tokens per second over those with K = 0, which is measured now and then, last minute; "
           "0: nothing decoded, or K = 0 not measured yet.",
           s.speedup.speedup_since(before.speedup));
}

void add_control(const Snapshot& s, const EngineInfo& info, Families* f) {
  f->gauge("pilotfish_alpha", "Alpha of the last step with a threshold rule (1 = exact).", s.alpha);
  f->gauge("pilotfish_alpha_busy_term", "What the load adds to dynamic alpha.", s.alpha_busy_term);
  f->gauge("pilotfish_alpha_acceptance_term", "What the acceptance adds to dynamic alpha.",
           s.alpha_acceptance_term);
  f->gauge("pilotfish_utilisation_percent",
           "Rows of a step over the rows at which a step takes twice as long, smoothed.",
           s.utilisation);
  f->counter("pilotfish_loss_spent_total", "Probability mass kept beyond the exact rule.",
             s.loss_spent);
  MetricFamily& dead =
      f->family("pilotfish_drafter_dead", "1: less than 5 % of what the drafter drafts is kept.",
                MetricType::Gauge);
  for (size_t i = 0; i < info.drafters.size() && i < 64; ++i)
    dead.metric.push_back(Families::metric(MetricType::Gauge,
                                           static_cast<double>(s.dead_drafters >> i & 1),
                                           {{"drafter", info.drafters[i].name}}));
  MetricFamily& again =
      f->family("pilotfish_kv_recomputed_tokens_total",
                "Tokens whose K and V were computed again, by plane.", MetricType::Counter);
  again.metric.push_back(Families::metric(
      MetricType::Counter, static_cast<double>(s.n_recomputed_target), {{"plane", "target"}}));
  again.metric.push_back(Families::metric(
      MetricType::Counter, static_cast<double>(s.n_recomputed_draft), {{"plane", "draft"}}));
}

void add_steps(const Snapshot& s, Families* f) {
  MetricFamily& times =
      f->family("pilotfish_step_seconds", "Time of a step's phases.", MetricType::Histogram);
  for (auto [phase, from] : {std::pair{"plan", &s.plan_times},
                             {"draft", &s.draft_times},
                             {"verify", &s.verify_times},
                             {"commit", &s.commit_times}}) {
    ClientMetric m;
    m.label = {{"phase", phase}};
    int64_t n = 0;
    for (size_t i = 0; i < TimeHistogram::kBuckets; ++i) {
      n += from->counts[i];
      bool last = i + 1 == TimeHistogram::kBuckets;
      if (i % 4 == 0 || last)  // powers of two are enough here
        m.histogram.bucket.push_back({static_cast<uint64_t>(n), TimeHistogram::upper(i)});
    }
    m.histogram.sample_count = static_cast<uint64_t>(n);
    m.histogram.sample_sum = from->sum_seconds;
    times.metric.push_back(std::move(m));
  }
  ClientMetric rows;
  int64_t n = 0;
  for (size_t i = 0; i < s.rows.counts.size(); ++i) {
    n += s.rows.counts[i];
    double bound = i < RowHistogram::kBounds.size() ? RowHistogram::kBounds[i] : HUGE_VAL;
    rows.histogram.bucket.push_back({static_cast<uint64_t>(n), bound});
  }
  rows.histogram.sample_count = static_cast<uint64_t>(n);
  rows.histogram.sample_sum = static_cast<double>(s.rows.sum);
  f->family("pilotfish_iteration_tokens_total", "Rows of a step.", MetricType::Histogram)
      .metric.push_back(std::move(rows));
}

}  // namespace

std::vector<MetricFamily> engine_metrics(const Snapshot& now, const Snapshot& before,
                                         const EngineInfo& info, int64_t age_us) {
  Families f;
  add_load(now, &f);
  add_speculation(now, info, &f);
  add_recent(now, before, &f);
  add_control(now, info, &f);
  add_steps(now, &f);
  f.gauge("pilotfish_watchdog_last_step_age_seconds", "Since the last step, 0 when idle.",
          1e-6 * static_cast<double>(age_us));
  f.family("pilotfish_cache_config_info", "Always 1; the KV cache.", MetricType::Gauge)
      .metric.push_back(Families::metric(MetricType::Gauge, 1,
                                         {{"num_gpu_blocks", std::to_string(now.kv_blocks_total)},
                                          {"dtype", info.dtype},
                                          {"cache_dtype", info.kv_dtype},
                                          {"cache_bytes", std::to_string(info.kv_bytes)}}));
  return std::move(f.all);
}

}  // namespace pf
