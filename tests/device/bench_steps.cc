// Whole steps of a 16-bit target and an INT4 draft of noise, with scripted acceptance: proposal,
// verification, head and accept rule run as in the engine; how many tokens a step keeps is drawn by
// the script, since noise agrees with nothing. Chains of fixed lengths are shown; what is judged is
// the engine's own choice of a length in every step (DraftLength), whatever the batch.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>

#include "batch/batch.h"
#include "device/bench.h"
#include "device/synthetic.h"
#include "engine/head_rooms.h"
#include "speculation/draft_length.h"

namespace pf {
namespace {

constexpr double kAcceptance = 0.8;
constexpr int32_t kMostDepth = 8;  // that the engine's choice may take

struct Sequence {
  std::vector<BlockId> blocks;
  std::vector<int32_t> committed = {1};  // not in the cache yet: the last one, or two after a step
  int64_t base = 0;                      // tokens before them
  DraftTree tree;
  DraftHistory history;
};

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

constexpr int64_t kRoom = 512;  // tokens that a sequence grows by until it begins anew

CudaOptions options_for(const BenchSizes& sizes, int32_t n_sequences) {
  CudaOptions o;
  o.numbers = CudaOptions::Numbers::kF16;
  o.block_tokens = sizes.n_block_tokens;
  o.max_context = sizes.step_context + kRoom;
  o.n_blocks = static_cast<int32_t>(o.max_context / o.block_tokens + 1) * n_sequences;
  o.max_rows = std::max(512, (kMostDepth + 1) * n_sequences);
  o.head_chunk_rows = std::clamp((kMostDepth + 1) * n_sequences, kMaxTreeNodes + 1, kMostHeadRows);
  o.max_sequences = n_sequences;
  return o;
}

class Stepper {
 public:
  Stepper(const BenchSizes& sizes, int32_t n_sequences)
      : target_shapes_(model_without_weights(sizes.target).take()),
        draft_shapes_(model_without_weights(sizes.draft).take()),
        options_(options_for(sizes, n_sequences)),
        context_(sizes.step_context),
        sequences_(static_cast<size_t>(n_sequences)) {
    const int32_t blocks = options_.n_blocks / n_sequences;
    for (size_t s = 0; s < sequences_.size(); ++s)
      for (int32_t i = 0; i < blocks; ++i)
        sequences_[s].blocks.push_back(static_cast<int32_t>(s) * blocks + i);
    greedy_.temperature = 0;
  }

  // False: the device has not the memory.
  bool make() {
    CudaOptions four = options_;
    four.int4 = true;
    int64_t needed = 0;
    for (const Footprint& f : {cuda_footprint(target_shapes_, nullptr, options_),
                               cuda_footprint(draft_shapes_, nullptr, four)})
      needed += f.weight_bytes + f.scratch_bytes + options_.n_blocks * f.kv_block_bytes;
    if (needed > cuda_free_bytes()) return false;
    target_ = make_backend_of(noise_model<f16>(target_shapes_, false, 11), options_);
    draft_ = make_backend_of(noise_model<f16>(draft_shapes_, true, 13), four);
    return true;
  }

  const BackendInfo& target() const { return target_->info(); }

  // Tokens per second of all sequences over n steps with chains of K tokens.
  double run(int32_t K, int32_t n_steps) {
    std::mt19937 script(17);
    begin_anew();
    step(K, script);  // graphs and memory that grows
    int64_t tokens = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int32_t i = 0; i < n_steps; ++i) tokens += step(K, script).n_tokens;
    return static_cast<double>(tokens) / std::max(since(begin), 1e-9);
  }

  // The same where the engine's rule says each length, after as many steps in which it learns.
  double run_chosen(int32_t n_steps, double* mean_depth) {
    DraftLength length({LengthRule::kAdaptive, 200, {0.1f}});
    std::mt19937 script(17);
    begin_anew();
    int64_t tokens = 0, drafted = 0;
    auto begin = std::chrono::steady_clock::now();
    for (int32_t i = 0; i < 2 * n_steps; ++i) {
      if (i == n_steps) {
        tokens = drafted = 0;
        begin = std::chrono::steady_clock::now();
      }
      // The first steps draft whatever is chosen: then both costs are known.
      const int32_t chosen = depth_of(length), K = i < 2 ? 2 : chosen;
      const Told told = step(K, script);
      tell(K, told, &length);
      tokens += told.n_tokens;
      drafted += K;
    }
    *mean_depth = static_cast<double>(drafted) / n_steps;
    return static_cast<double>(tokens) / std::max(since(begin), 1e-9);
  }

 private:
  // What a step gave and took.
  struct Told {
    int64_t n_tokens = 0;
    double draft_seconds = 0, target_seconds = 0, seconds = 0;
  };

  void begin_anew() {
    for (Sequence& s : sequences_) {
      s.base = context_;
      s.committed = {1};
      s.history = {};
    }
  }

  // All sequences go the same way here, so one depth serves them: the deepest that any was given.
  int32_t depth_of(DraftLength& length) {
    asks_.clear();
    for (Sequence& s : sequences_) {
      DraftAsk ask;
      ask.history = &s.history;
      ask.max_depth = kMostDepth;
      asks_.push_back(ask);
    }
    const auto n = static_cast<int32_t>(sequences_.size());
    length.plan({n, n, 0, options_.max_rows}, asks_);
    int32_t depth = 0;
    for (const DraftAsk& ask : asks_) depth = std::max(depth, ask.depth);
    return depth;
  }

  void tell(int32_t K, const Told& told, DraftLength* length) {
    std::vector<DraftRound> rounds;
    const auto n = static_cast<int32_t>(sequences_.size());
    if (K > 0)
      for (size_t i = 0; i < sequences_.size(); ++i)
        rounds.push_back({&sequences_[i].history, 0, 0, K, kept_[i]});
    const std::vector<std::vector<int32_t>> passes = {
        std::vector<int32_t>(static_cast<size_t>(K), n)};
    StepReport r;
    r.n_rows = batch_.n_rows();
    r.n_sequences = n;
    r.n_tokens = told.n_tokens;
    r.target_seconds = told.target_seconds;
    r.total_seconds = told.seconds;
    r.draft_seconds = {&told.draft_seconds, 1};
    r.draft_passes = passes;
    length->learn(rounds, r);
  }

  Told step(int32_t K, std::mt19937& script) {
    const auto begin = std::chrono::steady_clock::now();
    Told told;
    if (K > 0) {
      propose(K);
      told.draft_seconds = since(begin);
    }
    const auto proposed = std::chrono::steady_clock::now();
    verify(K);
    told.target_seconds = since(proposed);
    told.n_tokens = keep(K, script);
    told.seconds = since(begin);
    return told;
  }

  void verify(int32_t K) {
    batch_.clear();
    for (Sequence& s : sequences_) {
      if (K == 0) s.tree.clear();
      batch_.add(std::span(s.committed).last(1),
                 s.base + static_cast<int64_t>(s.committed.size()) - 1, &s.tree, s.blocks,
                 Batch::Logits::kLast);
    }
    target_->forward(batch_);
    std::vector<AcceptJob> jobs;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      AcceptInput in{};
      in.tree = &sequences_[i].tree;
      in.params = &greedy_;
      in.stop = &stop_;
      in.max_tokens = K + 1;
      jobs.push_back({static_cast<int32_t>(i), in});
    }
    results_.resize(jobs.size());
    target_->accept(jobs, results_);
  }

  void propose(int32_t K) {
    std::vector<ProposeJob> jobs;
    trees_.resize(sequences_.size());
    for (Sequence& s : sequences_) {
      ProposeJob job;
      job.committed = s.committed;
      job.base = s.base;
      job.blocks = s.blocks;
      job.n_draft = K;
      job.params = &greedy_;
      job.stop = &stop_;
      jobs.push_back(job);
    }
    draft_->propose(jobs, trees_);
    for (size_t i = 0; i < sequences_.size(); ++i) std::swap(sequences_[i].tree, trees_[i]);
  }

  // The script's word on how many of the drafted tokens stay; one more comes from the target.
  int64_t keep(int32_t K, std::mt19937& script) {
    int64_t tokens = 0;
    kept_.clear();
    for (Sequence& s : sequences_) {
      int32_t kept = 0;
      while (kept < K && std::bernoulli_distribution(kAcceptance)(script)) ++kept;
      tokens += kept + 1;
      kept_.push_back(kept);
      // The draft has fed all but its last token.
      const bool last_is_new = K > 0 && kept == K;
      s.base += static_cast<int64_t>(s.committed.size()) + kept - (last_is_new ? 1 : 0);
      s.committed.assign(last_is_new ? 2 : 1, 1);
      if (s.base + 2 * K + 2 >= context_ + kRoom) s.base = context_;  // begin anew
    }
    return tokens;
  }

  Model target_shapes_, draft_shapes_;
  const CudaOptions options_;
  const int64_t context_;
  std::unique_ptr<Backend> target_, draft_;
  std::vector<Sequence> sequences_;
  std::vector<DraftTree> trees_;
  std::vector<AcceptResult> results_;
  std::vector<DraftAsk> asks_;
  std::vector<int32_t> kept_;  // by the script, of the last step
  Batch batch_;
  SamplingParams greedy_;
  StopParams stop_;
};

// What acceptance 0.8 is to reach at each number of sequences (KERNELS section 3).
double goal_of(int32_t n_sequences) {
  return n_sequences == 1 ? 2.6 : n_sequences <= 32 ? 2.0 : 0.98;
}

}  // namespace

void bench_steps(const BenchSizes& sizes, BenchReport* report) {
  report->line("steps, acceptance 0.8 by script");
  for (int32_t n : sizes.batches) {
    char text[160];
    Stepper stepper(sizes, n);
    if (!stepper.make()) {
      std::snprintf(text, sizeof text, "  %3d sequences do not fit in this device's memory", n);
      report->line(text);
      continue;
    }
    const double plain = stepper.run(0, sizes.n_steps);
    if (n == 1) {
      const double bytes = static_cast<double>(stepper.target().bytes_per_step);
      report->goal({"single-stream", "16-bit target, one sequence, share of the peak bandwidth",
                    plain * bytes / report->memory_bytes_per_s, 0.83});
    }
    for (int32_t K : sizes.draft_lengths) {
      const double fast = stepper.run(K, sizes.n_steps);
      std::snprintf(text, sizeof text, "  %3d sequences, K = %d: %10.1f tok/s, %6.3f x plain", n, K,
                    fast, fast / plain);
      report->line(text);
    }
    // Plain steps before and behind, so that a clock that falls falls for both.
    double depth = 0;
    const double chosen = stepper.run_chosen(sizes.n_chosen_steps, &depth);
    std::snprintf(text, sizeof text, "  %3d sequences, chosen (%.2f on average): %10.1f tok/s", n,
                  depth, chosen);
    report->line(text);
    const double again = stepper.run(0, sizes.n_steps), both = 2 / (1 / plain + 1 / again);
    std::snprintf(text, sizeof text, "end to end over plain, chosen lengths, %d sequence(s)", n);
    report->goal({"end-to-end-" + std::to_string(n), text, chosen / both, goal_of(n)});
  }
}

}  // namespace pf
