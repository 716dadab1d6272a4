#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cpu/top_logits.h"
#include "bench/kernels.h"
#include "sampling/accept.h"

namespace pf {
namespace {

constexpr int32_t kChain = 4;  // drafted tokens that are judged
constexpr int32_t kDraftTop = 128;

// Logits of the rows of one chain, all of whose tokens every rule keeps.
struct Judged {
  std::vector<float> logits;  // [1 + kChain, V]
  DraftTree tree;
  SamplingParams params;
  StopParams stop;
  AcceptResult result;
  int64_t V;

  explicit Judged(int64_t width) : V(width) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    logits.resize(static_cast<size_t>((1 + kChain) * V));
    for (float& x : logits) x = 3 * normal(rng);
    for (int32_t i = 0; i < kChain; ++i) {
      const auto token = static_cast<int32_t>((7 + 1000 * i) % V);
      logits[static_cast<size_t>(i * V + token)] = 60;  // of the row before it: certain
      tree.add_one_hot(token, i - 1);
    }
  }
  std::span<const float> row(int32_t i) const {
    return std::span(logits).subspan(static_cast<size_t>(i * V), static_cast<size_t>(V));
  }
  void judge(float temperature, Acceptance rule) {
    params.temperature = temperature;
    AcceptInput in{.tree = &tree,
                   .logits = {logits.data(), {1 + kChain, V}},
                   .params = &params,
                   .stop = &stop,
                   .policy = {},
                   .key = {},
                   .position = 100,
                   .max_tokens = kChain + 1};
    in.policy.rule = rule;
    accept(in, &result);
    check(result.n_accepted == kChain, "a certain token was refused");
  }
};

struct Kernel {
  const char* name;
  int32_t rows;  // of V logits
  std::function<void()> run;
};

void add_line(KernelBench& bench, int64_t V, const Kernel& kernel) {
  ThreadPool alone(1);
  const double bytes = 4.0 * static_cast<double>(kernel.rows * V);
  std::vector<Load> subjects = {[&] {
    kernel.run();
    return bytes;
  }};
  auto rounds = alternate(bench.protocol, alone, read_probe(bench.memory, alone), subjects);
  double rate = rate_of_subject(rounds, 0).median;
  bench.report->add("sampling", {{"kernel", kernel.name},
                                 {"model", bench.model},
                                 {"V", V},
                                 {"rows", kernel.rows},
                                 {"us", rate > 0 ? Json(1e6 * bytes / rate) : Json()},
                                 {"KB", 1e-3 * bytes},
                                 {"of read", to_json(share_of_probe(rounds, 0))}});
}

}  // namespace

// One thread, as a sequence of a step is judged by one. The logits stay in the cache, where the
// head's product has left them.
void bench_sampling(KernelBench& bench, const CpuModel& model) {
  Judged judged(model.V);
  const std::span<const float> wide = judged.row(kChain);  // no token of it is certain
  Distribution p, all, cut;
  SamplingParams plain, top_k, top_p, both;
  for (SamplingParams* s : {&plain, &top_k, &top_p, &both}) s->temperature = 0.8f;
  top_k.top_k = both.top_k = 40;
  top_p.top_p = both.top_p = 0.95f;
  make_distribution(plain, wide, &all);
  make_distribution(top_p, wide, &cut);
  std::vector<TokenProbability> top;
  int64_t position = 0;
  const Kernel kernels[] = {
      {"argmax", 1, [&] { check(argmax(wide) >= 0, "no logits"); }},
      {"softmax, no cut", 1, [&] { make_distribution(plain, wide, &p); }},
      {"top-k 40", 1, [&] { make_distribution(top_k, wide, &p); }},
      {"top-p .95", 1, [&] { make_distribution(top_p, wide, &p); }},
      {"top-k 40, top-p .95", 1, [&] { make_distribution(both, wide, &p); }},
      {"draw from V", 1, [&] { check(draw(all, 0.5) >= 0, "nothing drawn"); }},
      {"draw from top-p .95", 1, [&] { check(draw(cut, 0.5) >= 0, "nothing drawn"); }},
      {"coupled draw from V", 1, [&] { draw_coupled(all, {}, ++position); }},
      {"accept 4, greedy", 1 + kChain, [&] { judged.judge(0, Acceptance::kRejection); }},
      {"accept 4, rejection", 1 + kChain, [&] { judged.judge(0.8f, Acceptance::kRejection); }},
      {"accept 4, coupled", 1 + kChain, [&] { judged.judge(0.8f, Acceptance::kCoupled); }},
      {"a draft's top 128", 1, [&] { find_top_logits(wide, {}, kDraftTop, &top); }}};
  for (const Kernel& kernel : kernels) add_line(bench, model.V, kernel);
}

}  // namespace pf
