// `plan --estimate`: what the planned engine would do on a described GPU, on paper.
#include <algorithm>
#include <cstdio>

#include "cli/line.h"
#include "cli/plan.h"
#include "engine/estimate.h"

namespace pf {
namespace {

// What one load came to, with drafts and without.
struct Row {
  Load load;
  bool fits = false;  // in the planned memory
  std::string draft;  // empty: none
  StepEstimate step;
  StepEstimate plain;
};

double speedup(const Row& r, double acceptance) {
  return r.step.tokens_per_second(r.load, acceptance) / r.plain.tokens_per_second(r.load, 0);
}

void print_head(const StepEstimator& e, const DeviceModel& d, const RooflineShares& s,
                int32_t n_devices) {
  std::printf("estimate for %s: %.0f GB/s, %.0f dense FP16 TFLOPS, %d multiprocessors (%s)\n",
              d.title, 1e-9 * d.memory_bytes_per_s, 1e-12 * d.tensor_flops_per_s,
              d.n_multiprocessors, d.source);
  std::printf(
      "  on paper, from the launches that the backend would issue; reach %.2f of the memory, %.2f "
      "of the tensor cores;\n  a kernel takes %.1f us at least and %.1f us to the next; host %.0f "
      "+ %.1f us a sequence\n",
      s.memory, s.tensor, s.smallest_kernel_us, d.graph_gap_us, s.host_step_us, s.host_sequence_us);
  for (const std::string& name : e.not_estimated())
    std::printf("  not estimated: the %s\n", name.c_str());
  if (n_devices > 1)
    std::printf(
        "  %d of them share the target: launches, GB and TFLOP are those of one; a gather takes "
        "%.0f us at least and %.0f GB/s\n",
        n_devices, d.exchange_us, 1e-9 * d.link_bytes_per_s * s.link);
}

void print_row(const Row& r, const std::vector<double>& acceptances) {
  const StepEstimate& e = r.step;
  std::printf("  %3d %9.3f %9.3f %9.3f %6lld %8.2f %8.2f ", e.K, 1e3 * e.target.seconds,
              1e3 * e.draft.seconds, 1e3 * e.seconds(),
              static_cast<long long>(e.target.n_launches + e.draft.n_launches),
              1e-9 * static_cast<double>(e.target.bytes + e.draft.bytes),
              1e-12 * (e.target.flops + e.draft.flops));
  if (e.K == 0) {
    std::printf("%9.0f tok/s\n", e.tokens_per_second(r.load, 0));
    return;
  }
  for (double a : acceptances)
    std::printf(" %7.0f (%.2f)", e.tokens_per_second(r.load, a), speedup(r, a));
  std::printf("\n");
}

void print_load(const Load& load, bool fits, const std::vector<double>& acceptances) {
  std::printf("%d sequence%s of %lld tokens%s%s\n", load.n_sequences,
              load.n_sequences == 1 ? "" : "s", static_cast<long long>(load.context),
              load.shared_prefix > 0
                  ? line(", %lld in common", static_cast<long long>(load.shared_prefix)).c_str()
                  : "",
              fits ? "" : "   (does not fit in memory as planned)");
  std::printf("    K  verify ms  draft ms   step ms  launches    GB   TFLOP   tok/s (speed-up)");
  for (double a : acceptances) std::printf("  a = %.2f  ", a);
  std::printf("\n");
}

nlohmann::json to_json(const Row& r, const std::vector<double>& acceptances) {
  auto work = [](const Work& w) {
    return nlohmann::json{{"seconds", w.seconds},       {"launches", w.n_launches},
                          {"bytes", w.bytes},           {"flops", w.flops},
                          {"exchanges", w.n_exchanges}, {"exchanged_bytes", w.exchanged_bytes}};
  };
  nlohmann::json json = {{"sequences", r.load.n_sequences},
                         {"context", r.load.context},
                         {"shared_prefix", r.load.shared_prefix},
                         {"fits", r.fits},
                         {"k", r.step.K},
                         {"draft", r.draft},
                         {"target", work(r.step.target)},
                         {"draft", work(r.step.draft)},
                         {"step_seconds", r.step.seconds()}};
  for (double a : acceptances)
    json["acceptance"].push_back({{"rate", a},
                                  {"tokens_per_second", r.step.tokens_per_second(r.load, a)},
                                  {"speedup", speedup(r, a)}});
  return json;
}

// Without drafts, then with each that can be estimated.
void add_rows(const EngineOptions& options, const PlanRequest& request, StepEstimator* estimator,
              Row* row, nlohmann::json* rows) {
  auto add = [&](const StepEstimate& step, const std::string& draft) {
    row->step = step;
    row->draft = draft;
    print_row(*row, request.acceptances);
    rows->push_back(to_json(*row, request.acceptances));
  };
  for (int64_t k : request.draft_lengths)
    if (k == 0) add(row->plain, "");
  const std::vector<std::string>& drafts = estimator->drafts();
  for (size_t d = 0; d < drafts.size(); ++d) {
    if (drafts.size() > 1) std::printf("   by the %s\n", drafts[d].c_str());
    for (int64_t k : request.draft_lengths) {
      const int64_t n = row->load.n_sequences * (k + 1);
      if (k > 0 && n > options.max_num_batched_tokens)
        std::printf("  %3lld needs --max-num-batched-tokens %lld\n", static_cast<long long>(k),
                    static_cast<long long>(n));
      else if (k > 0)
        add(estimator->estimate(row->load, static_cast<int32_t>(k), d), drafts[d]);
    }
  }
}

}  // namespace

nlohmann::json print_estimate(const EngineOptions& options, const MemoryPlan& plan,
                              const DeviceModel& device, const PlanRequest& request) {
  const RooflineShares shares;
  StepEstimator estimator(options, plan.residents, device, shares);
  print_head(estimator, device, shares, plan.residents[0].n_devices);
  nlohmann::json rows = nlohmann::json::array();
  std::vector<int64_t> contexts;  // of more than the plan's: the plan's
  for (int64_t context : request.contexts) {
    context = std::min(context, plan.max_context);
    if (contexts.empty() || contexts.back() != context) contexts.push_back(context);
  }
  for (int64_t context : contexts)
    for (int64_t n : request.batches) {
      Row row;
      row.load = {static_cast<int32_t>(n), context, std::min(request.shared_prefix, context - 1)};
      const Load& load = row.load;
      row.fits = load_fits(plan, options.block_size, n, context, load.shared_prefix);
      row.plain = estimator.estimate(load, 0);
      print_load(load, row.fits, request.acceptances);
      add_rows(options, request, &estimator, &row, &rows);
    }
  return rows;
}

}  // namespace pf
