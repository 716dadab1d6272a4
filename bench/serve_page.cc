#include "bench/serve_page.h"

#include <algorithm>
#include <cmath>

namespace pf {
namespace {

using Shape = Series::Shape;

// Share of the values at or below each one.
Series distribution_of(const std::string& name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  Series s{name, {}};
  if (!values.empty()) s.points.push_back({values[0], 0});
  for (size_t i = 0; i < values.size(); ++i)
    s.points.push_back(
        {values[i], static_cast<double>(i + 1) / static_cast<double>(values.size())});
  return s;
}

// Tokens in each of 60 equal parts of the time, per second.
Series throughput_of(std::span<const RequestRecord> records) {
  constexpr size_t kParts = 60;
  double end = 0;
  for (const RequestRecord& r : records)
    if (!r.message_s.empty()) end = std::max(end, r.message_s.back());
  Series s{"output tokens/s", {}};
  if (!(end > 0)) return s;
  std::vector<double> n(kParts, 0);
  for (const RequestRecord& r : records)
    for (size_t i = 0; i < r.message_s.size() && i < r.message_tokens.size(); ++i) {
      auto part = static_cast<size_t>(r.message_s[i] / end * kParts);
      n[std::min(part, kParts - 1)] += static_cast<double>(r.message_tokens[i]);
    }
  for (size_t i = 0; i < kParts; ++i)
    s.points.push_back({(static_cast<double>(i) + 0.5) * end / kParts, n[i] * kParts / end});
  return s;
}

Series acceptance_of(std::span<const RequestRecord> records) {
  std::vector<int64_t> drafted, accepted;
  for (const RequestRecord& r : records) {
    drafted.resize(std::max(drafted.size(), r.drafted_at.size()), 0);
    accepted.resize(drafted.size(), 0);
    for (size_t d = 0; d < r.drafted_at.size(); ++d) {
      drafted[d] += r.drafted_at[d];
      accepted[d] += d < r.accepted_at.size() ? r.accepted_at[d] : 0;
    }
  }
  Series s{"kept of drafted", {}, Shape::kBars};
  for (size_t d = 0; d < drafted.size() && drafted[d] > 0; ++d)
    s.points.push_back({static_cast<double>(d + 1),
                        static_cast<double>(accepted[d]) / static_cast<double>(drafted[d])});
  return s;
}

}  // namespace

std::vector<Plot> serve_plots(std::span<const RequestRecord> records) {
  std::vector<double> ttft, tpot, e2el;
  Series alpha{"alpha", {}, Shape::kPoints}, length{"K", {}, Shape::kPoints};
  for (const RequestRecord& r : records) {
    if (r.outcome != RequestRecord::Outcome::kCompleted) continue;
    if (r.n_tokens > 0) ttft.push_back(1e3 * r.ttft_s());
    if (r.n_tokens > 1) tpot.push_back(1e3 * r.tpot_s());
    e2el.push_back(1e3 * r.e2e_s());
    if (r.n_rounds == 0) continue;
    alpha.points.push_back({r.end_s, r.alpha});
    length.points.push_back(
        {r.end_s, static_cast<double>(r.n_drafted) / static_cast<double>(r.n_rounds)});
  }
  const char* ms = "milliseconds";
  const char* s = "seconds since the load began";
  return {
      {"Time to first token", ms, "share of requests", {distribution_of("ttft", ttft)}},
      {"Time per output token", ms, "share of requests", {distribution_of("tpot", tpot)}},
      {"Whole request", ms, "share of requests", {distribution_of("e2el", e2el)}},
      {"Throughput", s, "tokens per second", {throughput_of(records)}},
      {"Acceptance per position", "position in the draft", "share", {acceptance_of(records)}},
      {"Drafted tokens per round", s, "tokens", {length}},
      {"Alpha of the last round", s, "alpha", {alpha}},
  };
}

Status write_serve_page(const std::string& path, const Json& figures,
                        std::span<const RequestRecord> records) {
  return write_page(path, "pilotfish-bench serve", figures, serve_plots(records));
}

}  // namespace pf
