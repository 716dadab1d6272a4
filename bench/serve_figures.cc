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
  double mean = 0, squares = 0;
  for (double x : ms) mean += x / static_cast<double>(ms.size());
  for (double x : ms) squares += (x - mean) * (x - mean) / static_cast<double>(ms.size());
  (*out)["mean_" + name] = mean;
  (*out)["median_" + name] = quantile_of(ms, 0.5);
  (*out)["std_" + name] = std::sqrt(squares);
  (*out)["p99_" + name] = quantile_of(ms, 0.99);
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

Json serve_figures(std::span<const RequestRecord> records, double duration_s, const Slo& slo) {
  std::vector<double> ttft, tpot, itl, e2el, queue;
  int64_t completed = 0, failed = 0, cancelled = 0, good = 0, n_in = 0, n_out = 0;
  for (const RequestRecord& r : records) {
    queue.push_back(1e3 * (r.sent_s - r.due_s));
    failed += r.outcome == RequestRecord::Outcome::kFailed;
    cancelled += r.outcome == RequestRecord::Outcome::kCancelled;
    if (r.outcome != RequestRecord::Outcome::kCompleted) continue;
    ++completed;
    n_in += r.n_prompt;
    n_out += r.n_tokens;
    good += slo.met_by(r);
    e2el.push_back(1e3 * r.e2e_s());
    if (r.n_tokens > 0) ttft.push_back(1e3 * r.ttft_s());
    if (r.n_tokens > 1) tpot.push_back(1e3 * r.tpot_s());
    for (size_t i = 1; i < r.message_s.size(); ++i)
      itl.push_back(1e3 * (r.message_s[i] - r.message_s[i - 1]));
  }
  auto per_s = [&](int64_t n) { return duration_s > 0 ? static_cast<double>(n) / duration_s : 0; };
  Json out = {{"duration", duration_s},
              {"completed", completed},
              {"failed", failed},
              {"cancelled", cancelled},
              {"total_input_tokens", n_in},
              {"total_output_tokens", n_out},
              {"request_throughput", per_s(completed)},
              {"request_goodput", slo.any() ? Json(per_s(good)) : Json()},
              {"output_throughput", per_s(n_out)},
              {"total_token_throughput", per_s(n_in + n_out)}};
  add_spread("ttft_ms", ttft, &out);
  add_spread("tpot_ms", tpot, &out);
  add_spread("itl_ms", itl, &out);
  add_spread("e2el_ms", e2el, &out);
  add_spread("client_queue_ms", queue, &out);
  return out;
}

}  // namespace pf
