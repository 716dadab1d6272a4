#include "bench/length_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

#include "bench/scripted_backend.h"
#include "engine/step.h"

namespace pf {
namespace {

PassCost measure_passes(KernelBench& bench, Backend& backend) {
  PassCost cost;
  std::vector<int32_t> rows = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
  if (bench.quick) rows = {2, 8, 64};
  std::vector<Load> passes;
  for (int32_t m : rows) passes.push_back(step_load(backend, m, 0));
  Protocol protocol = bench.protocol;
  protocol.n_rounds = std::max(3, protocol.n_rounds / 3);
  auto rounds = alternate(protocol, bench.pool, step_load(backend, 1, 0), passes);
  for (size_t i = 0; i < rows.size(); ++i) {
    Kept share = share_of_probe(rounds, i);
    bench.report->add("draft length, passes", {{"model", bench.model},
                                               {"dtype", bench.dtype},
                                               {"threads", bench.pool.size()},
                                               {"rows", rows[i]},
                                               {"T(1)/T(m)", to_json(share)}});
    if (share.spread.n == 0) continue;
    cost.add(rows[i], cost.us[0] / share.median());
  }
  return cost;
}

// E of a chain of k drafted tokens (SPECULATION, 4).
double expected_tokens(double a, int32_t k) {
  return a < 1 ? (1 - std::pow(a, k + 1)) / (1 - a) : k + 1;
}

// Drafts are right as often as it is told; a level costs `ratio` of a target pass of its rows.
class ScriptedDrafter final : public Drafter {
 public:
  ScriptedDrafter(double acceptance, double ratio, const PassCost& cost, Clock* clock)
      : acceptance_(acceptance), ratio_(ratio), cost_(cost), clock_(clock) {}

  const std::string& name() const override { return name_; }
  int32_t match_length(const Sequence&) override { return 4; }
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override {
    std::bernoulli_distribution is_right(acceptance_);
    std::vector<int32_t> rows(kMostDrafted, 0);  // by level
    for (size_t i = 0; i < tasks.size(); ++i) {
      trees[i].clear();
      bool right = true;
      for (int32_t d = 0; d < tasks[i].depth(); ++d) {
        right = right && is_right(random_);
        int32_t token = ScriptedBackend::token_at(tasks[i].sequence->n_tokens() + d);
        trees[i].add_one_hot(right ? token : token + 16, d - 1);
        ++rows[static_cast<size_t>(d)];
      }
      gained_ += expected_tokens(acceptance_, tasks[i].depth()) - 1;
    }
    double us = 0;
    for (int32_t n : rows)
      if (n > 0) us += ratio_ * cost_(n);
    clock_->advance_us(std::llround(us));
  }
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence&) override {}

  // Tokens beside the target's own ones that the drafts so far give on average: figures are of the
  // lengths that were chosen, not of luck.
  double gained() const { return gained_; }

 private:
  const std::string name_ = "scripted";
  const double acceptance_, ratio_;
  const PassCost& cost_;
  Clock* clock_;
  std::mt19937_64 random_{11};
  double gained_ = 0;
};

}  // namespace

void PassCost::add(int32_t n_rows, double took_us) {
  rows.push_back(n_rows);
  us.push_back(std::max(took_us, us.back()));
}

double PassCost::operator()(int32_t n) const {
  if (rows.size() == 1) return us[0];
  size_t i = 1;
  while (i + 1 < rows.size() && rows[i] < n) ++i;
  double part = static_cast<double>(n - rows[i - 1]) / (rows[i] - rows[i - 1]);
  return us[i - 1] + part * (us[i] - us[i - 1]);
}

double adaptive_speed(const LengthCase& c, const PassCost& cost) {
  constexpr int32_t kBlock = 16, kPrompt = 16;
  Clock clock{1'000'000};
  BoundedQueue<std::unique_ptr<Request>> inbox(1);
  BoundedQueue<Event> outbox(1 << 12);
  const int64_t context = kPrompt + int64_t{c.n_steps + 16} * (kMostDrafted + 1);
  auto target = std::make_unique<ScriptedBackend>(context);
  target->on_forward = [&](int32_t n_rows) { clock.advance_us(std::llround(cost(n_rows))); };
  auto scripted = std::make_unique<ScriptedDrafter>(c.acceptance, c.ratio, cost, &clock);
  const ScriptedDrafter& drafter = *scripted;
  StepParts parts;
  parts.kv = {c.n_sequences * static_cast<int32_t>(context / kBlock + 1), kBlock, 1, false};
  parts.scheduler.max_num_seqs = c.n_sequences;
  parts.scheduler.max_num_batched_tokens = std::max(512, c.n_sequences * (kMostDrafted + 1));
  parts.target = std::move(target);
  parts.drafters.add(std::move(scripted));
  parts.max_context = context;
  parts.num_speculative_tokens = kMostDrafted;
  parts.length.rule = LengthRule::kAdaptive;
  parts.length.cost_ratios = {static_cast<float>(c.ratio)};
  Step step(std::move(parts), clock, &inbox, &outbox);
  Result<SelfTested> tested = step.self_test();
  check(tested.ok(), "the scripted target fails its self-test");
  for (int32_t s = 0; s < c.n_sequences; ++s) {
    auto r = std::make_unique<Request>();
    r->ticket = static_cast<uint64_t>(s) + 1;
    for (int32_t i = 0; i < kPrompt; ++i) r->prompt.push_back(ScriptedBackend::token_at(i));
    r->stop.max_new_tokens = static_cast<int32_t>(context);
    step.take(std::move(r));
  }
  auto run = [&](int n) {
    for (int i = 0; i < n; ++i) {
      step.run();
      while (outbox.try_pop()) {
      }
    }
  };
  run(4);  // prompts
  const int64_t began_us = clock.now_us();
  const double gained = drafter.gained();
  run(c.n_steps);
  return (c.n_steps * static_cast<double>(c.n_sequences) + drafter.gained() - gained) /
         static_cast<double>(clock.now_us() - began_us);
}

double fixed_speed(const LengthCase& c, const PassCost& cost, int32_t k) {
  return c.n_sequences * expected_tokens(c.acceptance, k) /
         (cost(c.n_sequences * (k + 1)) + k * c.ratio * cost(c.n_sequences));
}

void bench_length(KernelBench& bench, Backend& backend) {
  const PassCost cost = measure_passes(bench, backend);
  double least_plain = NAN, least_best = NAN;
  if (cost.rows.size() > 1)
    for (double ratio : {0.0, 0.05})
      for (int32_t n : bench.quick ? std::vector{1, 8} : std::vector{1, 4, 16, 64})
        for (double a : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}) {
          const LengthCase c = {a, ratio, n, bench.quick ? 100 : 2000};
          int32_t best_k = 0;
          for (int32_t k = 1; k <= kMostDrafted; ++k)
            if (fixed_speed(c, cost, k) > fixed_speed(c, cost, best_k)) best_k = k;
          const double speed = adaptive_speed(c, cost), plain = fixed_speed(c, cost, 0);
          const double best = fixed_speed(c, cost, best_k);
          bench.report->add("draft length", {{"model", bench.model},
                                             {"dtype", bench.dtype},
                                             {"threads", bench.pool.size()},
                                             {"sequences", n},
                                             {"acceptance", a},
                                             {"c", ratio},
                                             {"over K = 0", speed / plain},
                                             {"best K", best_k},
                                             {"over best K", speed / best}});
          least_plain = std::fmin(least_plain, speed / plain);
          least_best = std::fmin(least_best, speed / best);
        }
  bench.report->add(Goal{bench.id("C6.plain"),
                         "adaptive draft length over K = 0, the worst case, " + bench.at(),
                         least_plain, 0.98, true});
  bench.report->add(
      Goal{bench.id("C6.best"),
           "adaptive draft length over the best fixed K, the worst case, " + bench.at(), least_best,
           0.97, true});
}

std::vector<Plot> length_plots(const Json& lines) {
  std::vector<Plot> plots;
  for (const Json& line : lines) {
    char title[160];
    std::snprintf(title, sizeof(title), "Draft length, %s, %s, %d threads, a draft pass costs %.2f",
                  line["model"].get<std::string>().c_str(),
                  line["dtype"].get<std::string>().c_str(), line["threads"].get<int>(),
                  line["c"].get<double>());
    if (plots.empty() || plots.back().title != title)
      plots.push_back({title, "acceptance of a drafted token", "tokens/s over K = 0", {}});
    std::vector<Series>& series = plots.back().series;
    const std::string name = std::to_string(line["sequences"].get<int>()) + " sequences";
    if (series.empty() || series[series.size() - 2].name != name) {
      series.push_back({name, {}});
      series.push_back({"best fixed", {}, Series::Shape::kPoints});
    }
    double a = line["acceptance"].get<double>(), over_plain = line["over K = 0"].get<double>();
    series[series.size() - 2].points.push_back({a, over_plain});
    series.back().points.push_back({a, over_plain / line["over best K"].get<double>()});
  }
  return plots;
}

}  // namespace pf
