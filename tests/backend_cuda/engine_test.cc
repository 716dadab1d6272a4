// Truth: losslessness, with the whole engine on the CUDA backend in the PTX machine: the text of
// each request computed alone without drafts; and the CPU backend in float32.
#include "backend_cuda/cuda_engine.h"
#include "ptxvm/host_calls.h"

namespace pf {
namespace {

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
  const std::vector<CudaSetting> runs = {
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
    if (ptxvm::on_machine()) ptxvm::clear_host_calls();
    CudaEngine engine(runs[i]);
    const auto& want = runs[i].cpu ? cpu_int8 : runs[i].int8_kv ? int8 : plain;
    EXPECT_EQ(engine.run({1, 2, 3, 4, 5, 6}), want);
    EXPECT_EQ(engine.run({2, 5}), (std::map<uint64_t, std::vector<int32_t>>{
                                      {2, want.at(2)}, {5, want.at(5)}}));  // prefix hits
    EXPECT_EQ(engine.drafted > 0, runs[i].k > 0);
    EXPECT_TRUE(engine.accepted > 0 || !runs[i].model);
    EXPECT_EQ(engine.n_preemptions() > 0, runs[i].n_blocks < 60);
    if (!ptxvm::on_machine()) continue;
    EXPECT_EQ(ptxvm::host_calls().graphs > 0, runs[i].graphs);
  }
}

// Steps of up to 6 x 4 and 6 x 6 logit rows, of which there is room for 10.
TEST_F(CudaLossless, AStepThatTheHeadTakesInPartsKeepsTheText) {
  const auto want = alone(false, 6);
  for (CudaSetting setting : {CudaSetting{.k = 3, .ngram = true, .model = true},
                              {.k = 3, .tree = {2, 2}, .model = true},
                              {.k = 3, .exit_layers = 1, .graphs = false}}) {
    setting.head_rows = 10;
    EXPECT_EQ(CudaEngine(setting).run({1, 2, 3, 4, 5, 6}), want);
  }
}

// Whatever the room, the host waits for the verdict once a step, and for a draft of chains or of
// trees of one shape once more.
TEST_F(CudaLossless, AStepWaitsForItsVerdictAndItsDraftOnce) {
  if (!ptxvm::on_machine()) GTEST_SKIP() << "counts calls of the machine's runtime";
  for (int32_t head_rows : {33, 10})
    for (CudaSetting setting : {CudaSetting{},
                                {.k = 3, .ngram = true},
                                {.k = 3, .model = true},
                                {.k = 3, .tree = {2, 2}, .model = true}}) {
      setting.head_rows = head_rows;
      CudaEngine engine(setting);
      ptxvm::clear_host_calls();
      engine.run({1, 2, 3, 4, 5, 6});
      const auto waits = static_cast<int64_t>(ptxvm::host_calls().waits);
      EXPECT_GE(waits, engine.n_steps);
      EXPECT_LE(waits, engine.n_steps * (setting.model ? 2 : 1));
      EXPECT_EQ(waits > engine.n_steps, setting.model);
    }
}

// Runs all six and then two again, which hit prefixes; each must say what it says alone. With a
// twin the CPU drafts in every place as this does, and as many are kept. How many are.
int64_t expect_texts(CudaSetting setting, const std::map<uint64_t, std::vector<int32_t>>& want,
                     bool has_twin) {
  CudaEngine engine(setting);
  EXPECT_EQ(engine.run({1, 2, 3, 4, 5, 6}), want);
  EXPECT_EQ(engine.run({2, 5}),
            (std::map<uint64_t, std::vector<int32_t>>{{2, want.at(2)}, {5, want.at(5)}}));
  EXPECT_EQ(engine.n_preemptions() > 0, setting.n_blocks < 60);
  EXPECT_GT(engine.drafted, 0);
  if (!has_twin) return engine.accepted;
  setting.cpu = true;
  CudaEngine twin(setting);
  EXPECT_EQ(twin.run({1, 2, 3, 4, 5, 6}), want);
  twin.run({2, 5});
  EXPECT_EQ(engine.drafted, twin.drafted);
  EXPECT_EQ(engine.accepted, twin.accepted);
  return engine.accepted;
}

// A head that the CPU's twin agrees with in every draft: as many of them are kept, too.
TEST_F(CudaLossless, HeadsOverHiddenStatesDraftAsOnTheCpu) {
  const auto want = alone(false, 6, false, 12);
  std::vector<CudaSetting> runs = {
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
    runs[i].temperature = 12;              // a random head is right only where noise decides
    const bool has_twin = !runs[i].model;  // its weights are of 4 bits here
    const int64_t kept = expect_texts(runs[i], want, has_twin);
    if (has_twin) accepted += kept;
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

// The target's own first layers, which the CPU's twin agrees with in every draft; n-grams filtered
// by a model; and drafters on the host, lookahead's guesses with what is said behind them among
// them.
TEST_F(CudaLossless, EveryOtherDrafterKeepsTheText) {
  const auto want = alone(false, 6);
  std::vector<CudaSetting> runs = {
      {.k = 3, .exit_layers = 1},
      {.k = 3, .exit_layers = 2, .n_blocks = 7},  // preempts
      {.k = 3, .tree = {2, 2, 1}, .exit_layers = 2},
      {.k = 3, .cascade = true},
      {.k = 3, .tree = {3, 1}, .suffix = true},
      {.k = 4, .lookahead = true},
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    const bool has_twin = !runs[i].cascade;  // the CPU's would be of other weights
    const int64_t kept = expect_texts(runs[i], want, has_twin);
    EXPECT_TRUE(kept > 0 || runs[i].exit_layers == 0);
  }
}

// The rules that draw: from the same seeds the CPU's engine decides alike in every place, through
// drafts of one-hot q, sampled chains and trees. What a threshold keeps beyond the exact rule
// differs by the noise of f16 in p, 2^-10 of logits of a few units: 0.01 a token.
TEST_F(CudaLossless, SampledRulesDecideAsOnTheCpu) {
  auto policy = [](Acceptance rule, float alpha, float budget) {
    AcceptPolicy p;
    p.rule = rule;
    p.alpha = alpha;
    p.loss_budget = budget;
    return p;
  };
  const AcceptPolicy rejection = policy(Acceptance::kRejection, 1, -1),
                     coupled = policy(Acceptance::kCoupled, 1, -1),
                     threshold = policy(Acceptance::kThreshold, 0.05f, -1),
                     limited = policy(Acceptance::kThreshold, 0.05f, 0.05f);
  const std::vector<CudaSetting> runs = {
      {.k = 3, .ngram = true, .policy = rejection},
      {.k = 3, .exit_layers = 1, .policy = rejection},
      {.k = 4, .tree = {2, 2}, .exit_layers = 1, .policy = rejection},
      {.k = 4, .tree = {2, 2}, .exit_layers = 1, .policy = coupled},
      {.k = 3, .exit_layers = 1, .policy = threshold},
      {.k = 3, .exit_layers = 1, .policy = limited},
  };
  double lost = 0, lost_in_limits = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    CudaSetting setting = runs[i];
    CudaEngine cuda(setting);
    setting.cpu = true;
    CudaEngine cpu(setting);
    EXPECT_EQ(cuda.run({1, 2, 3, 5}), cpu.run({1, 2, 3, 5}));
    EXPECT_EQ(cuda.drafted, cpu.drafted);
    EXPECT_EQ(cuda.accepted, cpu.accepted);
    EXPECT_TRUE(cuda.accepted > 0 || setting.ngram);
    ASSERT_EQ(cuda.losses.size(), cpu.losses.size());
    const bool exact = setting.policy->rule != Acceptance::kThreshold;
    EXPECT_EQ(cuda.losses.empty(), exact);
    for (const auto& [ticket, loss] : cuda.losses) {
      EXPECT_NEAR(loss, cpu.losses.at(ticket), 0.01 * 12);
      (setting.policy->loss_budget >= 0 ? lost_in_limits : lost) += loss;
      // A token that would pass the limit is not kept by the threshold. A loss is told as a float:
      // twelve of them, none above 0.05, are off by less than 12 x 0.05 x 2^-24 < 1e-7.
      if (setting.policy->loss_budget >= 0) {
        EXPECT_LE(loss, setting.policy->loss_budget + 1e-7);
      }
    }
  }
  EXPECT_GT(lost, lost_in_limits);
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
