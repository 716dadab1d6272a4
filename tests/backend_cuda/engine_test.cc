// Truth: losslessness, with the whole engine on the CUDA backend in the PTX machine: the text of
// each request computed alone without drafts; and the CPU backend in float32.
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "backend/tiny_head.h"
#include "backend/tiny_medusa.h"
#include "backend_cuda/cuda_rig.h"
#include "engine/step.h"
#include "ptxvm/host_calls.h"
#include "speculation/eagle_drafter.h"
#include "speculation/medusa_drafter.h"
#include "speculation/model_drafter.h"
#include "speculation/ngram_drafter.h"

namespace pf {
namespace {

struct Setting {
  int32_t k = 0;
  std::vector<int32_t> tree = {};
  int32_t tree_nodes = 0;  // of trees that grow
  bool ngram = false, model = false;
  int32_t n_blocks = 60;
  bool cpu = false, graphs = true, int8_kv = false, cpu_draft = false;
  HeadKind head = HeadKind::kNone;  // a head over hidden states, with every second token
  bool reduced = false;             // the model has every second token, too
  bool medusa = false;              // three heads over hidden states
  float temperature = 2;            // of the coupled requests
};

class CudaEngine {
 public:
  explicit CudaEngine(const Setting& run)
      : temperature_(run.temperature), pool_(1), inbox_(64), outbox_(1024) {
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
    o.head_chunk_rows = 33;
    o.draft_top_n = 16;
    o.graphs = run.graphs;
    o.int8_kv = run.int8_kv;
    StepParts parts;
    const bool has_head = run.head != HeadKind::kNone;
    o.keep_hidden = has_head || run.medusa;
    const Model medusa = tiny_medusa({.width = 64});
    round_to_bf16(medusa);
    if (run.head == HeadKind::kEagle3) o.tap_layers = {1, 2};
    parts.kv = {run.n_blocks, 8, 1 + run.model + has_head, true};
    parts.scheduler = {8, 64};
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
      parts.target = make_cuda_backend(target, nullptr, o, pool_).take();
      o.keep_hidden = false;
      if (has_head || run.medusa) o.hidden_of = parts.target->hidden_states();
      if (run.medusa) add_medusa(make_cuda_backend(medusa, nullptr, o, pool_).take(), &parts);
      if (has_head)
        add_head(run, make_cuda_backend(head_of(run), nullptr, o, pool_).take(), &parts);
      o.hidden_of = {};
    }
    if (run.ngram) parts.drafters.add(std::make_unique<NgramDrafter>(run.model ? 2 : 1));
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
      r->sampling.temperature = i % 2 == 1 ? temperature_ : 0.0f;
      r->has_seed = i % 2 == 1;
      r->seed = 5 + i;
      r->stop.max_new_tokens = 12;
      step_->take(std::move(r));
    }
    std::map<uint64_t, std::vector<int32_t>> texts;
    for (int steps = 0; !step_->idle() && steps < 1000; ++steps) {
      step_->run();
      while (auto e = outbox_.try_pop()) {
        auto& t = texts[e->ticket];
        t.insert(t.end(), e->tokens.begin(), e->tokens.end());
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

  int64_t drafted = 0, accepted = 0;
  ModelDrafter* cpu_draft = nullptr;

 private:
  static Model head_of(const Setting& run) {
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
  static void add_head(const Setting& run, std::unique_ptr<Backend> head, StepParts* parts) {
    parts->drafters.add(std::make_unique<EagleDrafter>(
        EagleDrafter::Options{"eagle", run.model ? 2 : 1, 128, run.n_blocks, 8}, std::move(head)));
  }

  const float temperature_;
  ThreadPool pool_;
  Clock clock_{1'000'000};
  BoundedQueue<std::unique_ptr<Request>> inbox_;
  BoundedQueue<Event> outbox_;
  std::unique_ptr<Step> step_;
};

// Every request alone, without drafts and graphs, each in an engine of its own.
std::map<uint64_t, std::vector<int32_t>> alone(bool cpu, uint64_t n, bool int8_kv = false,
                                               float temperature = 2) {
  std::map<uint64_t, std::vector<int32_t>> texts;
  for (uint64_t i = 1; i <= n; ++i)
    texts.merge(
        CudaEngine({.cpu = cpu, .graphs = false, .int8_kv = int8_kv, .temperature = temperature})
            .run({i}));
  return texts;
}

class CudaLossless : public testing::Test {
 protected:
  void TearDown() override {
    for (const auto& f : ptxvm::take_findings()) ADD_FAILURE() << ptxvm::to_text(f);
  }
};

TEST_F(CudaLossless, PlainTextIsTheCpuBackends) {
  auto cuda = alone(false, 4), cpu = alone(true, 4);
  EXPECT_EQ(cuda.size(), 4u);
  EXPECT_EQ(cuda, cpu);  // f16 beside f32: 2^-10 of logits whose first two differ by far more
}

TEST_F(CudaLossless, BatchesDraftsTreesPrefixHitsAndPreemptionKeepTheText) {
  const auto plain = alone(false, 6), int8 = alone(false, 6, true), cpu_int8 = alone(true, 6, true);
  const std::vector<Setting> runs = {
      {},
      {.k = 3, .ngram = true},
      {.k = 1, .model = true},
      {.k = 4, .model = true},
      {.k = 3, .ngram = true, .model = true},
      {.k = 3, .tree = {2, 2, 1}, .model = true},
      {.k = 3, .tree_nodes = 9, .model = true},
      {.k = 3, .tree_nodes = 6, .ngram = true, .model = true, .n_blocks = 7, .graphs = false},
      {.k = 3, .model = true, .n_blocks = 7},  // not all six fit: some are preempted
      {.k = 3, .model = true, .graphs = false},
      {.k = 3, .tree = {2, 2, 1}, .model = true, .int8_kv = true},
      {.k = 3, .ngram = true, .model = true, .n_blocks = 7, .int8_kv = true},
      {.cpu = true, .graphs = false, .int8_kv = true},  // all six at once
      {.k = 3, .ngram = true, .cpu = true, .graphs = false, .int8_kv = true},
      {.k = 3, .ngram = true, .n_blocks = 7, .cpu = true, .graphs = false, .int8_kv = true},
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    ptxvm::clear_host_calls();
    CudaEngine engine(runs[i]);
    const auto& want = runs[i].cpu ? cpu_int8 : runs[i].int8_kv ? int8 : plain;
    EXPECT_EQ(engine.run({1, 2, 3, 4, 5, 6}), want);
    EXPECT_EQ(engine.run({2, 5}), (std::map<uint64_t, std::vector<int32_t>>{
                                      {2, want.at(2)}, {5, want.at(5)}}));  // prefix hits
    EXPECT_EQ(engine.drafted > 0, runs[i].k > 0);
    EXPECT_TRUE(engine.accepted > 0 || !runs[i].model);
    EXPECT_EQ(engine.n_preemptions() > 0, runs[i].n_blocks < 60);
    EXPECT_EQ(ptxvm::host_calls().graphs > 0, runs[i].graphs);
  }
}

// A head that the CPU's twin agrees with in every draft: as many of them are kept, too.
TEST_F(CudaLossless, HeadsOverHiddenStatesDraftAsOnTheCpu) {
  const auto want = alone(false, 6, false, 12);
  std::vector<Setting> runs = {
      {.k = 4, .head = HeadKind::kEagle},
      {.k = 5, .tree = {2, 2, 1}, .head = HeadKind::kEagle},
      {.k = 4, .head = HeadKind::kEagle3},
      {.k = 3, .tree_nodes = 8, .head = HeadKind::kEagle},
      {.k = 3, .tree_nodes = 8, .head = HeadKind::kEagle3},
      {.k = 5, .tree = {2, 2, 1}, .n_blocks = 7, .head = HeadKind::kEagle3},  // preempts
      {.k = 3, .ngram = true, .model = true, .head = HeadKind::kEagle3},
      {.k = 3, .medusa = true},
      {.k = 2, .tree = {3, 2}, .n_blocks = 7, .medusa = true},  // preempts
      {.k = 3, .tree_nodes = 8, .medusa = true},
  };
  int64_t accepted = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    runs[i].temperature = 12;  // a random head is right only where noise decides
    CudaEngine engine(runs[i]);
    EXPECT_EQ(engine.run({1, 2, 3, 4, 5, 6}), want);
    EXPECT_EQ(engine.run({2, 5}), (std::map<uint64_t, std::vector<int32_t>>{
                                      {2, want.at(2)}, {5, want.at(5)}}));  // prefix hits
    EXPECT_EQ(engine.n_preemptions() > 0, runs[i].n_blocks < 60);
    if (runs[i].model) continue;  // its weights are of 4 bits here
    runs[i].cpu = true;
    CudaEngine twin(runs[i]);
    EXPECT_EQ(twin.run({1, 2, 3, 4, 5, 6}), want);
    twin.run({2, 5});
    EXPECT_EQ(engine.drafted, twin.drafted);
    EXPECT_EQ(engine.accepted, twin.accepted);
    accepted += engine.accepted;
  }
  EXPECT_GT(accepted, 0);
}

TEST_F(CudaLossless, AReducedDraftModelKeepsTheText) {
  const auto want = alone(false, 6);
  for (const std::vector<int32_t>& tree : {std::vector<int32_t>{}, {2, 2, 1}}) {
    CudaEngine engine({.k = 4, .tree = tree, .model = true, .reduced = true});
    EXPECT_EQ(engine.run({1, 2, 3, 4, 5, 6}), want);
    EXPECT_GT(engine.drafted, 0);
  }
}

// The draft on the CPU drafts on while the target computes; what it has ready is used, and what
// the target disagrees with is taken back.
TEST_F(CudaLossless, ADraftOnTheCpuWorksAhead) {
  const auto want = alone(false, 6);
  for (int32_t k : {1, 3}) {
    CudaEngine engine({.k = k, .cpu_draft = true});
    EXPECT_EQ(engine.run({1, 2, 3, 4, 5, 6}), want);
    EXPECT_GT(engine.accepted, 0);
    EXPECT_LT(engine.accepted, engine.drafted);
    EXPECT_GT(engine.cpu_draft->n_ahead_used(), 0);
    EXPECT_EQ(engine.cpu_draft->windows()->n_blocks_in_use(), 0);
  }
}

}  // namespace
}  // namespace pf
