#pragma once

#include <map>
#include <optional>

#include "backend/cpu/cpu_backend.h"
#include "backend/tiny_head.h"
#include "backend/tiny_medusa.h"
#include "backend_cuda/cuda_rig.h"
#include "backend_cuda/peer_gather.h"
#include "engine/step.h"
#include "speculation/cascade_drafter.h"
#include "speculation/eagle_drafter.h"
#include "speculation/early_exit_drafter.h"
#include "speculation/lookahead_drafter.h"
#include "speculation/medusa_drafter.h"
#include "speculation/model_drafter.h"
#include "speculation/ngram_drafter.h"
#include "speculation/predicted_drafter.h"
#include "speculation/suffix_drafter.h"

namespace pf {

// A whole engine of a tiny model, on the CUDA backend in the PTX machine or on the CPU.
struct CudaSetting {
  int32_t k = 0;
  std::vector<int32_t> tree = {};
  int32_t tree_nodes = 0;  // of trees that grow
  bool ngram = false, model = false, suffix = false, lookahead = false;
  int32_t exit_layers = 0;  // > 0: the target's own first layers draft
  bool cascade = false;     // n-grams filtered by the model, which does not draft itself
  int32_t n_blocks = 60;
  bool cpu = false, graphs = true, int8_kv = false, cpu_draft = false;
  HeadKind head = HeadKind::kNone;          // a head over hidden states, with every second token
  bool reduced = false;                     // the model has every second token, too
  bool medusa = false;                      // three heads over hidden states
  float temperature = 2;                    // of the coupled requests
  int32_t n_devices = 1;                    // that share the target
  int32_t head_rows = 33;                   // logit rows that there is room for at once
  std::optional<AcceptPolicy> policy = {};  // of all requests; none: greedy and coupled
  std::map<uint64_t, std::vector<int32_t>> predicted = {};  // what requests bring, by number
  int32_t n_new_tokens = 12;
  int32_t max_num_seqs = 8;
};

class CudaEngine {
 public:
  explicit CudaEngine(const CudaSetting& run) : setting_(run), pool_(1), inbox_(64), outbox_(1024) {
    Model target = bf16_model(cuda_shape());
    TinyShape small = cuda_shape();
    small.layers = 1;  // the target's first layer: right about as often as a draft is
    Model draft = run.reduced ? reduced_model(small, 2) : bf16_model(small);
    round_to_bf16(draft);
    CudaOptions o;
    o.numbers = CudaOptions::Numbers::kF16;
    o.n_blocks = run.n_blocks;
    o.block_tokens = 8;
    o.max_rows = 64;
    o.max_context = 128;
    o.head_chunk_rows = run.head_rows;
    o.draft_top_n = 16;
    o.graphs = run.graphs;
    o.int8_kv = run.int8_kv;
    StepParts parts;
    const bool has_head = run.head != HeadKind::kNone;
    o.keep_hidden = has_head || run.medusa;
    const Model medusa = tiny_medusa({.width = 64});
    round_to_bf16(medusa);
    if (run.head == HeadKind::kEagle3) o.tap_layers = {1, 2};
    parts.kv = {run.n_blocks, 8, 1 + run.model + run.cascade + has_head, true};
    parts.scheduler = {run.max_num_seqs, 64};
    if (run.cpu) {
      CpuOptions c;
      c.weights = CpuOptions::Weights::kF32;
      c.n_blocks = run.n_blocks;
      c.block_tokens = 8;
      c.max_rows = 64;
      c.max_context = 128;
      c.draft_top_n = 16;
      c.keep_hidden = o.keep_hidden;
      c.tap_layers = o.tap_layers;
      c.int8_kv = run.int8_kv;
      parts.target = make_cpu_backend(target, nullptr, c, pool_).take();
      c.keep_hidden = false;
      if (has_head || run.medusa) c.hidden_of = parts.target->hidden_states();
      if (run.medusa) add_medusa(make_cpu_backend(medusa, nullptr, c, pool_).take(), &parts);
      if (has_head) add_head(run, make_cpu_backend(head_of(run), nullptr, c, pool_).take(), &parts);
    } else {
      parts.target = make_cuda_backend(target, nullptr, on_devices(run.n_devices, o), pool_).take();
      o.keep_hidden = false;
      if (has_head || run.medusa) o.hidden_of = parts.target->hidden_states();
      if (run.medusa) add_medusa(make_cuda_backend(medusa, nullptr, o, pool_).take(), &parts);
      if (has_head)
        add_head(run, make_cuda_backend(head_of(run), nullptr, o, pool_).take(), &parts);
      o.hidden_of = {};
    }
    if (!run.predicted.empty()) parts.drafters.add(std::make_unique<PredictedDrafter>());
    if (run.ngram) parts.drafters.add(std::make_unique<NgramDrafter>(run.model ? 2 : 1));
    if (run.suffix) parts.drafters.add(std::make_unique<SuffixDrafter>(1));
    if (run.lookahead) parts.drafters.add(std::make_unique<LookaheadDrafter>());
    if (run.exit_layers > 0)
      parts.drafters.add(std::make_unique<EarlyExitDrafter>(parts.target.get(), run.exit_layers));
    if (run.cascade) {
      auto model = make_cuda_backend(draft, nullptr, o, pool_).take();
      Backend* judge = model.get();
      parts.drafters.add(std::make_unique<CascadeDrafter>(
          CascadeDrafter::Options{"cascade", 1, 128, 64, 16}, std::make_unique<NgramDrafter>(1),
          judge, std::move(model)));
    }
    if (run.model) {
      o.int4 = true;
      parts.drafters.add(std::make_unique<ModelDrafter>(
          ModelDrafter::Options{.name = "model", .plane = 1, .max_context = 128},
          make_cuda_backend(draft, nullptr, o, pool_).take()));
    }
    if (run.cpu_draft) {
      CpuOptions c;
      c.weights = CpuOptions::Weights::kInt4;
      c.n_blocks = 40;
      c.block_tokens = 8;
      c.max_rows = 64;
      c.max_context = 64;
      c.draft_top_n = 16;
      auto drafter = std::make_unique<ModelDrafter>(
          ModelDrafter::Options{.name = "model", .windows = {64, 0, 40, 8}, .overlaps = true},
          make_cpu_backend(draft, nullptr, c, pool_).take());
      cpu_draft = drafter.get();
      parts.drafters.add(std::move(drafter));
    }
    parts.max_context = 128;
    parts.num_speculative_tokens = run.k;
    parts.speculation_tree = run.tree;
    parts.speculation_tree_nodes = run.tree_nodes;
    step_ = std::make_unique<Step>(std::move(parts), clock_, &inbox_, &outbox_);
  }

  // The texts of n requests at once, by number; even ones greedy, odd ones coupled.
  std::map<uint64_t, std::vector<int32_t>> run(std::vector<uint64_t> numbers) {
    for (uint64_t i : numbers) {
      auto r = std::make_unique<Request>();
      r->ticket = i;
      r->prompt = text_of(6 + 9 * static_cast<int32_t>(i % 3), static_cast<int32_t>(i % 2));
      r->sampling.temperature = i % 2 == 1 ? setting_.temperature : 0.0f;
      r->has_seed = i % 2 == 1;
      r->seed = 5 + i;
      r->stop.max_new_tokens = setting_.n_new_tokens;
      if (auto text = setting_.predicted.find(i); text != setting_.predicted.end())
        r->speculation.predicted = text->second;
      if (setting_.policy) {
        r->speculation.rule = SpeculationParams::Rule::kNamed;
        r->speculation.policy = *setting_.policy;
        r->speculation.has_alpha = true;
      }
      step_->take(std::move(r));
    }
    std::map<uint64_t, std::vector<int32_t>> texts;
    for (int steps = 0; !step_->idle() && steps < 1000; ++steps) {
      step_->run();
      ++n_steps;
      while (auto e = outbox_.try_pop()) {
        auto& t = texts[e->ticket];
        t.insert(t.end(), e->tokens.begin(), e->tokens.end());
        for (float l : e->losses) losses[e->ticket] += l;
        for (const VerifiedRound& round : e->rounds) {
          drafted += round.n_drafted;
          accepted += round.n_accepted;
        }
      }
    }
    EXPECT_TRUE(step_->idle());
    step_->check_integrity();
    return texts;
  }
  int64_t n_preemptions() const { return step_->snapshot().n_preemptions; }

  int64_t drafted = 0, accepted = 0, n_steps = 0;
  std::map<uint64_t, double> losses;  // by request, of those that lost something
  ModelDrafter* cpu_draft = nullptr;

 private:
  static Model head_of(const CudaSetting& run) {
    TinyShape shape = cuda_shape();
    shape.seed = 9;
    Model head = tiny_head(
        shape, {.kind = run.head, .n_states = run.head == HeadKind::kEagle3 ? 2 : 1, .every = 2});
    round_to_bf16(head);
    return head;
  }
  static void add_medusa(std::unique_ptr<Backend> heads, StepParts* parts) {
    parts->drafters.add(
        std::make_unique<MedusaDrafter>(MedusaDrafter::Options{"medusa", 3}, std::move(heads)));
  }
  static void add_head(const CudaSetting& run, std::unique_ptr<Backend> head, StepParts* parts) {
    parts->drafters.add(std::make_unique<EagleDrafter>(
        EagleDrafter::Options{"eagle", run.model ? 2 : 1, 128, run.n_blocks, 8}, std::move(head)));
  }

  const CudaSetting setting_;
  ThreadPool pool_;
  Clock clock_{1'000'000};
  BoundedQueue<std::unique_ptr<Request>> inbox_;
  BoundedQueue<Event> outbox_;
  std::unique_ptr<Step> step_;
};

// Every request alone, without drafts and graphs, each in an engine of its own.
inline std::map<uint64_t, std::vector<int32_t>> alone(CudaSetting run, uint64_t n) {
  run.graphs = false;
  std::map<uint64_t, std::vector<int32_t>> texts;
  for (uint64_t i = 1; i <= n; ++i) texts.merge(CudaEngine(run).run({i}));
  return texts;
}
inline std::map<uint64_t, std::vector<int32_t>> alone(bool cpu, uint64_t n, bool int8_kv = false,
                                                      float temperature = 2) {
  return alone({.cpu = cpu, .int8_kv = int8_kv, .temperature = temperature}, n);
}

}  // namespace pf
