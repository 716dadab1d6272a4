#include "bench/serve_figures.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <sstream>

namespace pf {
namespace {

// As numpy's mean, median, std (of the population) and percentile.
void add_spread(const std::string& name, const std::vector<double>& ms, Json* out) {
  if (ms.empty()) {
    for (const char* figure : {"mean_", "median_", "std_", "p99_"}) (*out)[figure + name] = Json();
    return;
  }
  double mean = 0, squares = 0;
  for (double x : ms) mean += x / static_cast<double>(ms.size());
  for (double x : ms) squares += (x - mean) * (x - mean) / static_cast<double>(ms.size());
  (*out)["mean_" + name] = mean;
  (*out)["median_" + name] = quantile_of(ms, 0.5);
  (*out)["std_" + name] = std::sqrt(squares);
  (*out)["p99_" + name] = quantile_of(ms, 0.99);
}

// vLLM's definitions: the rate in percent; the length 1 + kept per draft; by position, kept at it
// over drafts.
void add_speculation(std::span<const RequestRecord> records, Json* out) {
  int64_t n_drafts = 0, n_drafted = 0, n_accepted = 0;
  std::vector<int64_t> accepted_at;
  for (const RequestRecord& r : records) {
    if (r.outcome != RequestRecord::Outcome::kCompleted) continue;
    n_drafts += r.n_drafts;
    n_drafted += r.n_drafted;
    n_accepted += r.n_accepted;
    accepted_at.resize(std::max(accepted_at.size(), r.accepted_at.size()), 0);
    for (size_t d = 0; d < r.accepted_at.size(); ++d) accepted_at[d] += r.accepted_at[d];
  }
  auto over = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  (*out)["spec_decode_num_drafts"] = n_drafts;
  (*out)["spec_decode_draft_tokens"] = n_drafted;
  (*out)["spec_decode_accepted_tokens"] = n_accepted;
  (*out)["spec_decode_acceptance_rate"] =
      n_drafted > 0 ? Json(100 * over(n_accepted, n_drafted)) : Json();
  (*out)["spec_decode_acceptance_length"] =
      n_drafts > 0 ? Json(1 + over(n_accepted, n_drafts)) : Json();
  Json rates = Json::array();
  for (int64_t n : accepted_at)
    if (n_drafts > 0) rates.push_back(over(n, n_drafts));
  (*out)["spec_decode_per_position_acceptance_rates"] = std::move(rates);
}

}  // namespace

bool Slo::met_by(const RequestRecord& r) const {
  return (ttft_ms <= 0 || 1e3 * r.ttft_s() <= ttft_ms) &&
         (tpot_ms <= 0 || 1e3 * r.tpot_s() <= tpot_ms) &&
         (e2el_ms <= 0 || 1e3 * r.e2e_s() <= e2el_ms);
}

Result<Slo> slo_of(const std::string& text) {
  if (text == "mlperf-8b-server") return Slo{2000, 100, 0};
  if (text == "mlperf-8b-interactive") return Slo{500, 30, 0};
  Slo slo;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    size_t colon = word.find(':');
    std::string name = word.substr(0, colon);
    double* to = name == "ttft"   ? &slo.ttft_ms
                 : name == "tpot" ? &slo.tpot_ms
                 : name == "e2el" ? &slo.e2el_ms
                                  : nullptr;
    char* end = nullptr;
    const char* number = colon == std::string::npos ? "" : word.c_str() + colon + 1;
    double ms = std::strtod(number, &end);
    if (to == nullptr || *number == '\0' || *end != '\0' || !std::isfinite(ms) || ms <= 0)
      return invalid("--goodput \"" + text +
                     "\": give ttft:MS, tpot:MS and e2el:MS, mlperf-8b-server or "
                     "mlperf-8b-interactive");
    *to = ms;
  }
  return slo;
}

std::vector<double> arrival_times(int n, double rate, double burstiness, uint64_t seed) {
  std::vector<double> times(static_cast<size_t>(n), 0);
  if (rate <= 0) return times;
  std::mt19937_64 rng(seed);
  std::gamma_distribution<double> gap(burstiness, 1 / (rate * burstiness));
  for (size_t i = 1; i < times.size(); ++i) times[i] = times[i - 1] + gap(rng);
  return times;
}

std::vector<double> ramp_times(int n, double from, double to, double burstiness, uint64_t seed) {
  std::vector<double> times(static_cast<size_t>(n), 0);
  std::mt19937_64 rng(seed);
  for (size_t i = 1; i < times.size(); ++i) {
    double part = static_cast<double>(i) / static_cast<double>(n - 1);
    double rate = from + (to - from) * part;
    times[i] =
        times[i - 1] + std::gamma_distribution<double>(burstiness, 1 / (rate * burstiness))(rng);
  }
  return times;
}

Result<Ramp> ramp_of(const std::string& text) {
  Ramp ramp;
  char* end = nullptr;
  ramp.from = std::strtod(text.c_str(), &end);
  bool ok = end != text.c_str() && *end == ':';
  if (ok) {
    const char* second = end + 1;
    ramp.to = std::strtod(second, &end);
    ok = end != second && *end == '\0';
  }
  if (!ok || !(ramp.from > 0) || !(ramp.to > 0) || !std::isfinite(ramp.from + ramp.to))
    return invalid("--ramp " + text + ": give FROM:TO in requests per second, such as 1:20");
  return ramp;
}

std::vector<Json> ramp_lines(std::span<const RequestRecord> records) {
  std::vector<Json> lines;
  size_t n_parts = std::min<size_t>(10, records.size());
  for (size_t part = 0; part < n_parts; ++part) {
    size_t begin = part * records.size() / n_parts, end = (part + 1) * records.size() / n_parts;
    std::vector<double> ttft, tpot, e2el;
    double last = 0;
    for (const RequestRecord& r : records.subspan(begin, end - begin)) {
      if (r.outcome != RequestRecord::Outcome::kCompleted) continue;
      ttft.push_back(1e3 * r.ttft_s());
      e2el.push_back(1e3 * r.e2e_s());
      if (r.n_tokens > 1) tpot.push_back(1e3 * r.tpot_s());
      last = std::max(last, r.end_s);
    }
    auto per_s = [](size_t n, double s) {
      return s > 0 ? Json(static_cast<double>(n) / s) : Json();
    };
    auto quantile = [](const std::vector<double>& ms, double q) {
      return ms.empty() ? Json() : Json(quantile_of(ms, q));
    };
    size_t next = std::min(end, records.size() - 1);
    lines.push_back({{"requests", std::to_string(begin + 1) + "-" + std::to_string(end)},
                     {"asked/s", per_s(next - begin, records[next].due_s - records[begin].due_s)},
                     {"completed/s", per_s(e2el.size(), last - records[begin].due_s)},
                     {"completed", e2el.size()},
                     {"median ttft ms", quantile(ttft, 0.5)},
                     {"median tpot ms", quantile(tpot, 0.5)},
                     {"p99 e2el ms", quantile(e2el, 0.99)}});
  }
  return lines;
}

Json cost_figures(const Json& figures, double usd_per_hour) {
  double usd = usd_per_hour / 3600 * figures.at("duration").get<double>();
  auto per_million = [&](double n) { return n > 0 ? Json(1e6 * usd / n) : Json(); };
  double n_out = figures.at("total_output_tokens"), n_in = figures.at("total_input_tokens");
  return {{"cost_per_hour", usd_per_hour},
          {"cost_per_million_requests", per_million(figures.at("completed"))},
          {"cost_per_million_output_tokens", per_million(n_out)},
          {"cost_per_million_tokens", per_million(n_in + n_out)}};
}

bool load_failed(const Json& figures, bool strict) {
  auto count = [&](const char* key) { return figures.value(key, int64_t{0}); };
  const int64_t failed = count("failed") + count("failed_in_all_loads");
  return failed > 0 && (strict || count("completed") + count("cancelled") == 0);
}

Json serve_figures(std::span<const RequestRecord> records, double duration_s, const Slo& slo) {
  std::vector<double> ttft, tpot, itl, e2el, queue;
  int64_t completed = 0, failed = 0, cancelled = 0, good = 0, n_in = 0, n_out = 0, n_messages = 0;
  for (const RequestRecord& r : records) {
    queue.push_back(1e3 * (r.sent_s - r.due_s));
    failed += r.outcome == RequestRecord::Outcome::kFailed;
    cancelled += r.outcome == RequestRecord::Outcome::kCancelled;
    if (r.outcome != RequestRecord::Outcome::kCompleted) continue;
    ++completed;
    n_in += r.n_prompt;
    n_out += r.n_tokens;
    n_messages += static_cast<int64_t>(r.message_s.size());
    good += slo.met_by(r);
    e2el.push_back(1e3 * r.e2e_s());
    if (r.n_tokens > 0) ttft.push_back(1e3 * r.ttft_s());
    if (r.n_tokens > 1) tpot.push_back(1e3 * r.tpot_s());
    for (size_t i = 1; i < r.message_s.size(); ++i)
      itl.push_back(1e3 * (r.message_s[i] - r.message_s[i - 1]));
  }
  auto per_s = [&](int64_t n) {
    return duration_s > 0 && completed > 0 ? Json(static_cast<double>(n) / duration_s) : Json();
  };
  Json out = {{"duration", duration_s},
              {"completed", completed},
              {"failed", failed},
              {"cancelled", cancelled},
              {"total_input_tokens", n_in},
              {"total_output_tokens", n_out},
              {"total_messages", n_messages},
              {"request_throughput", per_s(completed)},
              {"request_goodput", slo.any() ? per_s(good) : Json()},
              {"output_throughput", per_s(n_out)},
              {"total_token_throughput", per_s(n_in + n_out)}};
  add_spread("ttft_ms", ttft, &out);
  add_spread("tpot_ms", tpot, &out);
  add_spread("itl_ms", itl, &out);
  add_spread("e2el_ms", e2el, &out);
  add_spread("client_queue_ms", queue, &out);
  add_speculation(records, &out);
  return out;
}

}  // namespace pf
