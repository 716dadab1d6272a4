#include <memory>
#include <numeric>

#include "bench/kernels.h"

namespace pf {
namespace {

// Forward, head and accept rule at one place of the text, again and again; greedy.
class StepScene {
 public:
  // n_sequences rows of sequences of their own, or one sequence with a chain of n_nodes drafted.
  StepScene(Backend& backend, int32_t n_sequences, int32_t n_nodes, int32_t block_tokens)
      : backend_(backend) {
    int32_t per_sequence = (kStepContext + n_nodes) / block_tokens + 1;
    blocks_.resize(static_cast<size_t>(n_sequences * per_sequence));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    for (int32_t i = 0; i < n_nodes; ++i) tree_.add_one_hot(7 + i, i - 1);
    token_ = {5};
    jobs_.resize(static_cast<size_t>(n_sequences));
    results_.resize(jobs_.size());
    for (int32_t s = 0; s < n_sequences; ++s) {
      batch_.add(token_, kStepContext, &tree_,
                 std::span(blocks_).subspan(static_cast<size_t>(s * per_sequence),
                                            static_cast<size_t>(per_sequence)),
                 Batch::Logits::kLast);
      AcceptJob& job = jobs_[static_cast<size_t>(s)];
      job.segment = s;
      job.input.tree = &tree_;
      job.input.params = &params_;
      job.input.stop = &stop_;
      job.input.position = kStepContext + 1;
      job.input.max_tokens = n_nodes + 1;
    }
  }

  double run() {
    backend_.forward(batch_);
    backend_.accept(jobs_, results_);
    return 1;
  }

 private:
  Backend& backend_;
  std::vector<BlockId> blocks_;
  std::vector<int32_t> token_;
  DraftTree tree_;
  SamplingParams params_;
  StopParams stop_;
  Batch batch_;
  std::vector<AcceptJob> jobs_;
  std::vector<AcceptResult> results_;
};

void add_line(KernelBench& bench, const char* what, int32_t m, double bytes, const Kept& share,
              const Kept& slower, double steps_per_s) {
  bench.report->add("step", {{"rows", what},
                             {"model", bench.model},
                             {"dtype", bench.dtype},
                             {"threads", bench.pool.size()},
                             {"m", m},
                             {"us", steps_per_s > 0 ? Json(1e6 / steps_per_s) : Json()},
                             {"MB", 1e-6 * bytes},
                             {"of read", to_json(share)},
                             {"T(m)/T(1)", to_json(slower)}});
}

}  // namespace

Load step_load(Backend& backend, int32_t n_sequences, int32_t n_nodes) {
  auto scene = std::make_shared<StepScene>(backend, n_sequences, n_nodes, kStepBlock);
  return [scene] { return scene->run(); };
}

void bench_step(KernelBench& bench, Backend& backend) {
  double bytes = static_cast<double>(backend.info().bytes_per_step);
  bool judged = bench.quick || is_past_cache(backend.info().bytes_per_step);
  auto goal = [&](const char* id, const char* name, double value, double goal, bool at_least) {
    bench.report->add(
        Goal{bench.id(id), std::string(name) + ", " + bench.at(), value, goal, at_least});
  };
  Load one = step_load(backend, 1, 0);
  for (bool verify : {false, true})
    for (int m : bench.rows) {
      if (m > 64 || (verify && m == 1)) continue;  // a tree has 64 nodes at most
      Load many = verify ? step_load(backend, 1, m - 1) : step_load(backend, m, 0);
      std::vector<Load> subjects = {[&] { return one() * bytes; }, [&] { return many() * bytes; }};
      auto rounds =
          alternate(bench.protocol, bench.pool, read_probe(bench.memory, bench.pool), subjects);
      Kept share = share_of_probe(rounds, 1), slower = ratio_of_subjects(rounds, 0, 1);
      add_line(bench, verify ? "one sequence" : "sequences", m, bytes, share, slower,
               rate_of_subject(rounds, 1).median / bytes);
      if (!judged) continue;
      if (m == 1 && bench.dtype == "bf16")
        goal("C1", "decode, bytes per token x tokens/s over the read probe", share.spread.median,
             0.93, true);
      if (m == 1 && bench.dtype == "int4")
        goal("C2", "decode, bytes per token x tokens/s over the read probe", share.spread.median,
             0.90, true);
      if (m == 4 && verify)
        goal("step.T4", "whole step, one sequence, T(4) / T(1)", slower.spread.median, 1.08, false);
    }
}

}  // namespace pf
