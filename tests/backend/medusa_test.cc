// Truth: Medusa heads by their definition in double (tests/backend/tiny_medusa.h).
#include "backend/cpu/cpu_backend.h"
#include "backend/medusa_rig.h"

namespace pf {
namespace {

struct Rig {
  explicit Rig(const TinyMedusa& shape, CpuOptions::Weights weights = CpuOptions::Weights::kF32,
               int threads = 3)
      : model(tiny_medusa(shape)), pool(threads) {
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    for (int r = 0; r < 6; ++r) {
      states.emplace_back();
      for (int64_t i = 0; i < shape.width; ++i) {
        kept.push_back(normal(rng));
        states.back().push_back(static_cast<double>(kept.back()));
      }
    }
    CpuOptions o;
    o.weights = weights;
    o.max_rows = 4;  // slots
    o.head_chunk_rows = 2;
    o.draft_top_n = static_cast<int32_t>(shape.vocabulary);
    o.hidden_of = {kept.data(), 6, shape.width};
    options = o;
    auto made = make_cpu_backend(model, nullptr, o, pool);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) heads = made.take();
  }
  Model model;
  ThreadPool pool;
  std::vector<float> kept;
  States states;
  CpuOptions options;
  std::unique_ptr<Backend> heads;
};

TEST(MedusaHeads, SayWhatTheirDefinitionSays) {
  for (int32_t blocks : {1, 3})
    for (int threads : {1, 3}) {
      Rig rig({.n_heads = 4, .n_blocks = blocks}, CpuOptions::Weights::kF32, threads);
      rig.heads->keep_hidden(std::vector<HiddenKeep>{{0, 2}, {5, 0}, {3, 3}});
      const std::vector<int32_t> widths = {3, 2, 1, 2};
      MedusaJobs jobs({2, 0, 3}, 3 + 6 + 6 + 12, widths);  // three jobs, two at a time
      rig.heads->propose(jobs.jobs, jobs.trees);
      // float beside double: sums of 48 products at logits of about 3.
      expect_heads(rig.model, rig.states[0], jobs.trees[0], widths, 1e-4);
      expect_heads(rig.model, rig.states[5], jobs.trees[1], widths, 1e-4);
      expect_heads(rig.model, rig.states[3], jobs.trees[2], widths, 1e-4);
    }
}

TEST(MedusaHeads, AChainHasALevelForEachHeadAndNoMore) {
  Rig rig({.n_heads = 3});
  rig.heads->keep_hidden(std::vector<HiddenKeep>{{1, 1}});
  for (int32_t n : {1, 2, 3}) {
    MedusaJobs jobs({1}, n);
    rig.heads->propose(jobs.jobs, jobs.trees);
    expect_heads(rig.model, rig.states[1], jobs.trees[0],
                 std::vector<int32_t>(static_cast<size_t>(n), 1), 1e-4);
  }
  MedusaJobs more({1}, 5), none({1}, 0);
  rig.heads->propose(more.jobs, more.trees);
  EXPECT_EQ(more.trees[0].size(), 3);
  rig.heads->propose(none.jobs, none.trees);
  EXPECT_EQ(none.trees[0].size(), 0);
}

// q of level two is the same behind every node: the best four pairs of the two heads' tokens.
TEST(MedusaHeads, ATreeThatGrowsHoldsTheBestPaths) {
  Rig rig({.n_heads = 2});
  rig.heads->keep_hidden(std::vector<HiddenKeep>{{4, 0}});
  MedusaJobs jobs({0}, 9);
  jobs.jobs[0].grown_levels = 2;
  rig.heads->propose(jobs.jobs, jobs.trees);
  const DraftTree& tree = jobs.trees[0];
  ASSERT_EQ(tree.size(), 9);
  auto law = [&](size_t head) {
    std::vector<double> p = define_medusa(rig.model, head, rig.states[4]);
    double total = 0;
    for (double& x : p) total += x = std::exp(x);
    for (double& x : p) x /= total;
    return p;
  };
  const std::vector<double> first = law(0), second = law(1);
  std::vector<double> all = first;
  for (double a : first)
    for (double b : second) all.push_back(a * b);
  std::sort(all.rbegin(), all.rend());
  for (int32_t n = 0; n < tree.size(); ++n) {
    auto i = static_cast<size_t>(n);
    double worth =
        tree.parents[i] < 0
            ? first[static_cast<size_t>(tree.tokens[i])]
            : first[static_cast<size_t>(tree.tokens[static_cast<size_t>(tree.parents[i])])] *
                  second[static_cast<size_t>(tree.tokens[i])];
    EXPECT_GE(worth, all[8] * (1 - 1e-4)) << "node " << i;
  }
}

TEST(MedusaHeads, QuantisedOnesAreNear) {
  Rig exact({.width = 64}), eight({.width = 64}, CpuOptions::Weights::kInt8),
      half({.width = 64}, CpuOptions::Weights::kBf16);
  for (Rig* rig : {&exact, &eight, &half}) {
    rig->heads->keep_hidden(std::vector<HiddenKeep>{{2, 0}});
    MedusaJobs jobs({0}, 3);
    rig->heads->propose(jobs.jobs, jobs.trees);
    const std::vector<double> logits = define_medusa(rig->model, 0, rig->states[2]);
    double total = 0;
    for (double x : logits) total += std::exp(x);
    double want = logits[static_cast<size_t>(jobs.trees[0].tokens[0])] - std::log(total);
    // A weight is off by 2^-8 of the largest of 32 at most, activations likewise; 64 of them add
    // up as noise: 8 * 2^-8 * 3 of products of about 1/8.
    EXPECT_NEAR(std::log(static_cast<double>(jobs.trees[0].scores[0])), want, 0.1);
  }
}

TEST(MedusaHeads, AStateThatIsNotFiniteProposesNothing) {
  Rig rig({});
  rig.kept[0] = NAN;
  rig.heads->keep_hidden(std::vector<HiddenKeep>{{0, 0}, {1, 1}});
  MedusaJobs jobs({0, 1}, 3);
  rig.heads->propose(jobs.jobs, jobs.trees);
  EXPECT_EQ(jobs.trees[0].size(), 0);
  EXPECT_EQ(jobs.trees[1].size(), 3);
}

TEST(MedusaHeads, TakeTheMemoryThatWasForetold) {
  for (auto weights : {CpuOptions::Weights::kF32, CpuOptions::Weights::kInt4}) {
    Rig rig({.width = 64, .n_blocks = 2}, weights);
    const Footprint f = cpu_footprint(rig.model, nullptr, rig.options, 3);
    EXPECT_EQ(f.weight_bytes, rig.heads->info().weight_bytes);
    EXPECT_EQ(f.scratch_bytes, rig.heads->info().scratch_bytes);
    EXPECT_EQ(f.kv_block_bytes, 0);
    EXPECT_EQ(rig.heads->info().kv_bytes, 0);
  }
}

TEST(MedusaHeads, PackingCountsWhatTheFileHasOfTheMatrices) {
  Progress progress;
  Rig rig({.width = 64, .n_heads = 2, .n_blocks = 2});
  rig.options.progress = &progress;
  ThreadPool pool(2);
  ASSERT_TRUE(make_cpu_backend(rig.model, nullptr, rig.options, pool).ok());
  EXPECT_EQ(progress.done(), 4 * 2 * (2 * 64 * 64 + 101 * 64));  // F32; two heads
  EXPECT_EQ(progress.done(), cpu_footprint(rig.model, nullptr, rig.options, 2).read_bytes);
}

TEST(MedusaHeads, RefuseStatesOfAnotherWidth) {
  Model m = tiny_medusa({});
  ThreadPool pool(1);
  CpuOptions o;
  std::vector<float> kept(64);
  o.hidden_of = {kept.data(), 1, 64};
  EXPECT_NE(make_cpu_backend(m, nullptr, o, pool)
                .status()
                .message()
                .find("hidden states of width 48, its target gives 64"),
            std::string::npos);
}

}  // namespace
}  // namespace pf
