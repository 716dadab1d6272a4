// Truth: the same launches one by one. A graph changes how a pass or a draft gets to the device,
// never a bit of it; and budgets of launches.
#include "backend/cuda/graphs.h"

#include "backend/cuda/device_memory.h"
#include "backend_cuda/cuda_rig.h"
#include "kernels/gather_rows.h"
#include "ptxvm/host_calls.h"
#include "sampling/token_counts.h"

namespace pf {
namespace {

using Kind = GraphKey::Kind;

TEST(PaddedRows, AreFewAndNearlyTheRows) {
  EXPECT_EQ(padded_rows(1, 512), 1);
  EXPECT_EQ(padded_rows(3, 512), 4);
  EXPECT_EQ(padded_rows(17, 512), 24);
  EXPECT_EQ(padded_rows(17, 20), 20);
  EXPECT_EQ(padded_rows(128, 512), 128);
  EXPECT_EQ(padded_rows(129, 512), 0);  // a prompt's chunk goes launch by launch
}

// Each "launch" is a copy of one byte to its place.
class GraphCache : public testing::Test {
 protected:
  GraphCache() {
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    bytes = memory.as<unsigned char>();
  }
  ~GraphCache() override {
    cuda_check(cudaStreamSynchronize(stream));
    cuda_check(cudaStreamDestroy(stream));
  }
  // A step of n launches. What the device did must be there each time.
  void step(Graphs* graphs, int32_t n) {
    cuda_check(cudaMemset(bytes, 0, 64));
    graphs->run({.kind = Kind::kPass, .n_rows = n}, stream, [&] {
      for (int32_t i = 0; i < n; ++i) cuda_check(cudaMemsetAsync(bytes + i, 7, 1, stream));
    });
    cuda_check(cudaStreamSynchronize(stream));
    unsigned char got[64];
    cuda_check(cudaMemcpy(got, bytes, 64, cudaMemcpyDeviceToHost));
    for (int32_t i = 0; i < 64; ++i) ASSERT_EQ(got[i], i < n ? 7 : 0) << "launch " << i;
  }
  int64_t n_alive() const { return ptxvm::host_calls().n_executable_graphs; }

  cudaStream_t stream = nullptr;
  DeviceMemory memory{64};
  unsigned char* bytes = nullptr;
};

TEST_F(GraphCache, CapturesAtTheSecondStep) {
  Graphs graphs(10);
  const uint64_t before = ptxvm::host_calls().graphs;
  for (uint64_t i = 0; i < 4; ++i) {
    step(&graphs, 3);
    EXPECT_EQ(ptxvm::host_calls().graphs - before, i);
    EXPECT_EQ(graphs.n_nodes(), i == 0 ? 0 : 3);
  }
}

TEST_F(GraphCache, HoldsItsBoundAndForgetsTheLongestUnused) {
  const int64_t alive = n_alive();
  {
    Graphs graphs(10);
    for (int32_t n : {4, 4, 5, 5, 4, 3, 3}) step(&graphs, n);  // 3 makes 5 go: 4 was used later
    EXPECT_EQ(graphs.n_nodes(), 7);
    EXPECT_EQ(n_alive() - alive, 2);
    const uint64_t before = ptxvm::host_calls().graphs;
    step(&graphs, 4);
    step(&graphs, 5);  // captured again at once, in the place of 3
    EXPECT_EQ(ptxvm::host_calls().graphs - before, 2u);
    EXPECT_EQ(graphs.n_nodes(), 9);
    for (int i = 0; i < 3; ++i) step(&graphs, 11);  // larger than all the room
    EXPECT_EQ(ptxvm::host_calls().graphs - before, 2u);
    EXPECT_EQ(graphs.n_nodes(), 9);
    for (int32_t n = 1; n <= 10; ++n)
      for (int i = 0; i < 2; ++i) {
        step(&graphs, n);
        EXPECT_LE(graphs.n_nodes(), 10);
      }
  }
  EXPECT_EQ(n_alive(), alive);
}

TEST_F(GraphCache, KnowsWhatTheDriverTookForIt) {
  ptxvm::set_graph_node_bytes(100);
  Graphs graphs(10);
  for (int32_t n : {4, 4, 5, 5}) step(&graphs, n);
  EXPECT_EQ(graphs.taken_bytes(), 900);
  for (int i = 0; i < 2; ++i) step(&graphs, 3);  // 4 goes
  EXPECT_EQ(graphs.taken_bytes(), 800);
  ptxvm::set_graph_node_bytes(0);
}

using GraphMemory = GraphCache;

// The figure of a device (scripts/device_check.sh); on the machine a graph takes what it is told.
TEST_F(GraphMemory, ANodeTakesNoMoreThanIsSetAsideForIt) {
  constexpr int64_t kNodes = 2000;
  ptxvm::set_graph_node_bytes(kGraphNodeBytes);
  DeviceMemory x(64), y(64), index(16);
  cuda_check(cudaMemset(x.as(), 0, 64));
  cuda_check(cudaMemset(index.as(), 0, 16));
  Graphs graphs;
  for (int i = 0; i < 2; ++i)
    graphs.run({.n_rows = 1}, stream, [&] {
      for (int64_t n = 0; n < kNodes; ++n)
        kernels::gather_rows<float, float>({y.as<float>(), {1, 4}}, {x.as<float>(), {1, 4}},
                                           {index.as<int32_t>(), {1}}, stream);
    });
  EXPECT_EQ(graphs.n_nodes(), kNodes);
  std::printf("a node takes %.0f bytes, %lld are set aside\n",
              static_cast<double>(graphs.taken_bytes()) / kNodes,
              static_cast<long long>(kGraphNodeBytes));
  EXPECT_LE(graphs.taken_bytes(), kNodes * kGraphNodeBytes);
  cuda_check(cudaStreamSynchronize(stream));
  ptxvm::set_graph_node_bytes(0);
}

TEST_F(GraphCache, ForgetsWhatRestsOnMemoryThatHasMoved) {
  Graphs graphs(100);
  for (int i = 0; i < 2; ++i) {
    graphs.rest_on(Kind::kPass, {bytes}, stream);
    step(&graphs, 5);
  }
  EXPECT_EQ(graphs.n_nodes(), 5);
  graphs.rest_on(Kind::kChains, {bytes}, stream);
  EXPECT_EQ(graphs.n_nodes(), 5);
  graphs.rest_on(Kind::kPass, {bytes + 1}, stream);
  EXPECT_EQ(graphs.n_nodes(), 0);
}

// Two backends of one model, one with graphs.
struct Pair {
  explicit Pair(const Model& model, CudaOptions o = {})
      : launches(model, without(o)), graphs(model, o) {}
  static CudaOptions without(CudaOptions o) {
    o.graphs = false;
    return o;
  }
  // The logits of both; equal bits.
  void forward(const Batch& batch) {
    launches.backend->forward(batch);
    graphs.backend->forward(batch);
    const auto n = static_cast<int32_t>(batch.logit_rows.size());
    auto want = launches.logits(n), got = graphs.logits(n);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << "logit row " << i;
  }

  CudaRig launches, graphs;
};

// Decode and verify of every number of rows up to past a few paddings, each several times over, so
// that one graph serves steps of different positions, tables, trees and numbers of rows.
TEST(CudaGraphs, PassesHaveTheBitsOfTheirLaunches) {
  TinyShape windowed = cuda_shape();
  windowed.sliding_window = 7;
  for (const TinyShape& shape : {cuda_shape(), windowed}) {
    Model m = bf16_model(shape);
    Pair pair(m);
    std::vector<std::vector<int32_t>> texts;
    std::vector<std::vector<BlockId>> tables;
    Batch batch;
    for (int32_t s = 0; s < 5; ++s) {
      texts.push_back(text_of(61 + 7 * s, s));
      tables.push_back(pair.graphs.table(14, 30 * s));
    }
    for (size_t s = 0; s < 5; ++s) {
      batch.add(texts[s], 0, nullptr, tables[s], Batch::Logits::kLast);
      pair.forward(batch);
      batch.clear();
    }
    for (int32_t step = 0; step < 12; ++step) {
      std::vector<DraftTree> trees(5);
      for (int32_t s = 0; s < 5; ++s)  // chains, and trees that branch
        for (int32_t i = 0; i < (step * 3 + s) % 5; ++i)
          trees[static_cast<size_t>(s)].add_one_hot(10 + i + step,
                                                    i < 1 + s % 3 ? DraftTree::kRoot : i - 1);
      for (size_t s = 0; s < 1 + static_cast<size_t>(step) % 5; ++s) {
        texts[s].push_back(step + 20);
        batch.add(std::span(texts[s]).last(1), static_cast<int64_t>(texts[s].size()) - 1, &trees[s],
                  tables[s], step % 4 == 3 ? Batch::Logits::kAll : Batch::Logits::kLast);
      }
      SCOPED_TRACE("step of " + std::to_string(batch.n_rows()) + " rows");
      pair.forward(batch);
      batch.clear();
    }
  }
}

// A padded row has no place: what stands in block 0 and at token 0 is left alone.
TEST(CudaGraphs, PaddedRowsTouchNothing) {
  Model m = bf16_model(cuda_shape());
  Pair pair(m);
  std::vector<int32_t> kept = text_of(8), other = text_of(9, 1);
  std::vector<BlockId> first = {0, 1}, second = {7, 9};
  Batch batch;
  batch.add(kept, 0, nullptr, first, Batch::Logits::kNone);
  pair.forward(batch);
  for (int i = 0; i < 3; ++i) {
    batch.clear();
    batch.add(std::span(other).first(5), 0, nullptr, second, Batch::Logits::kLast);
    pair.forward(batch);
  }
  batch.clear();
  std::vector<int32_t> next = {3};
  batch.add(next, 8, nullptr, first, Batch::Logits::kLast);
  pair.forward(batch);
}

TEST(CudaGraphs, APassIsOneLaunch) {
  Model m = bf16_model(cuda_shape());
  CudaRig rig(m);
  std::vector<int32_t> t = text_of(40);
  auto table = rig.table(8, 0);
  Batch batch;
  for (int32_t at = 0; at < 4; ++at) {
    batch.clear();
    batch.add(std::span(t).subspan(static_cast<size_t>(at), 1), at, nullptr, table,
              Batch::Logits::kLast);
    ptxvm::clear_host_calls();
    const uint64_t before = ptxvm::n_launches();
    rig.backend->forward(batch);
    ptxvm::HostCalls calls = ptxvm::host_calls();
    rig.logits(1);  // waits
    EXPECT_EQ(calls.graphs, at > 0 ? 1u : 0u);
    EXPECT_EQ(calls.kernels, at > 0 ? 0u : 2u + 5u * 2u);
    EXPECT_EQ(calls.copies, 1u);
    EXPECT_EQ(calls.waits, 0u);
    // 5 per layer, one in front of them and one behind; and the head of logits().
    EXPECT_EQ(ptxvm::n_launches() - before, 5u * 2u + 2u + 1u);
  }
}

class CudaDrafts : public testing::Test {
 protected:
  // Three sequences, drafted in `round` of a generation: their texts are longer by then.
  std::vector<ProposeJob> jobs(int32_t round, Acceptance rule, const SamplingParams& params) {
    static constexpr int32_t kLengths[] = {2, 4, 3};
    committed.clear();
    counts.assign(3, {});
    std::vector<ProposeJob> made;
    for (int32_t s = 0; s < 3; ++s) {
      committed.push_back(text_of(30, s));
      ProposeJob job;
      const auto base = static_cast<size_t>(round == 0 ? 0 : 3 + s + 2 * round);
      job.base = static_cast<int64_t>(base);
      job.n_draft = kLengths[(s + round) % 3];
      job.policy.rule = rule;
      job.params = &params;
      job.stop = &stop;
      job.key = {7, static_cast<uint32_t>(s)};
      job.n_generated = round;
      made.push_back(job);
    }
    for (size_t s = 0; s < 3; ++s) {
      const auto base = static_cast<size_t>(made[s].base);
      made[s].committed =
          std::span(committed[s]).subspan(base, round == 0 ? 5 + s : 1 + (s + base) % 2);
      counts[s].add_prompt(std::span(committed[s]).first(base + made[s].committed.size()));
      if (params.has_penalties()) made[s].counts = &counts[s];
    }
    return made;
  }

  static void expect_same(const DraftTree& got, const DraftTree& want, float tolerance) {
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.parents, want.parents);
    EXPECT_EQ(got.depths, want.depths);
    EXPECT_EQ(got.q_begin, want.q_begin);
    EXPECT_EQ(got.q_end, want.q_end);
    ASSERT_EQ(got.scores.size(), want.scores.size());
    for (size_t i = 0; i < want.scores.size(); ++i)
      EXPECT_NEAR(got.scores[i], want.scores[i], tolerance);
    // Entries that no node points to (of a node that was looked at when the tree was full) are not
    // part of it.
    int32_t n_entries = 0;
    for (int32_t end : want.q_end) n_entries = std::max(n_entries, end);
    ASSERT_GE(static_cast<int32_t>(got.q_entries.size()), n_entries);
    for (size_t i = 0; i < static_cast<size_t>(n_entries); ++i) {
      EXPECT_EQ(got.q_entries[i].token, want.q_entries[i].token);
      EXPECT_NEAR(got.q_entries[i].probability, want.q_entries[i].probability, tolerance);
    }
  }

  StopParams stop;
  std::vector<std::vector<int32_t>> committed;
  std::vector<TokenCounts> counts;
};

TEST_F(CudaDrafts, ChainsAreThoseOfTheirLaunches) {
  Model m = bf16_model(cuda_shape());
  Pair pair(m, {.int4 = true});
  stop.end_ids = {3, 5};
  stop.min_new_tokens = 4;
  SamplingParams greedy, warm, ruled;
  warm.temperature = 1.5f;
  ruled.temperature = 2;
  ruled.presence_penalty = 0.4f;
  ruled.logit_bias = {{9, 2.0f}, {11, -100.0f}};
  for (const SamplingParams& params : {greedy, warm, ruled})
    for (Acceptance rule : {Acceptance::kRejection, Acceptance::kCoupled})
      for (int32_t round = 0; round < 5; ++round) {
        auto made = jobs(round, rule, params);
        std::vector<std::vector<BlockId>> tables;
        for (int32_t s = 0; s < 3; ++s) tables.push_back(pair.graphs.table(6, 30 * s));
        for (size_t s = 0; s < 3; ++s) made[s].blocks = tables[s];
        std::vector<DraftTree> want(3), got(3);
        pair.launches.backend->propose(made, want);
        pair.graphs.backend->propose(made, got);
        for (size_t s = 0; s < 3; ++s) {
          EXPECT_EQ(got[s].size(), made[s].n_draft);
          expect_same(got[s], want[s], 0);
        }
      }
}

// Trees of one shape grow on the device. A chain beside them sends them level by level through the
// host, which knows every node before it plans the next pass.
TEST_F(CudaDrafts, TreesAreThoseOfTheirLaunchesAndOfTheHost) {
  static constexpr int32_t kBushy[] = {2, 2, 1, 3}, kWide[] = {5, 1};
  // Six nodes are two full levels of the bushy ones; ten are all that the wide one has.
  static constexpr int32_t kFew[] = {6, 4, 5}, kMany[] = {20, 6, 9};
  Model m = bf16_model(cuda_shape());
  Pair pair(m, {.int4 = true});
  CudaRig host(m, {.int4 = true, .graphs = false});
  stop.end_ids = {3, 5};
  stop.min_new_tokens = 4;
  SamplingParams warm, cut;
  warm.temperature = 1.5f;
  cut.temperature = 1.5f;
  cut.top_k = 1;  // fewer tokens than a level is wide: six nodes take more than two levels
  for (const SamplingParams& params : {warm, cut})
    for (std::span<const int32_t> widths :
         {std::span<const int32_t>(kBushy), std::span<const int32_t>(kWide)})
      for (int32_t round = 0; round < 3; ++round) {
        auto rule = round % 2 == 0 ? Acceptance::kCoupled : Acceptance::kRejection;
        auto made = jobs(round, rule, params);
        std::vector<std::vector<BlockId>> tables;
        for (int32_t s = 0; s < 4; ++s) tables.push_back(host.table(6, 30 * s));
        for (size_t s = 0; s < 3; ++s) {
          made[s].blocks = tables[s];
          made[s].widths = widths;
          made[s].n_draft =
              (widths.size() > 2 ? kFew : kMany)[(s + static_cast<size_t>(round)) % 3];
        }
        std::vector<DraftTree> launches(3), graphs(3), mixed(4);
        pair.launches.backend->propose(made, launches);
        pair.graphs.backend->propose(made, graphs);
        made.push_back(made[0]);
        made[3].blocks = tables[3];
        made[3].widths = {};
        made[3].n_draft = 1;
        host.backend->propose(made, mixed);
        for (size_t s = 0; s < 3; ++s) {
          SCOPED_TRACE("sequence " + std::to_string(s) + " in round " + std::to_string(round));
          EXPECT_GT(graphs[s].size(), 0);
          expect_same(graphs[s], launches[s], 0);
          expect_same(graphs[s], mixed[s], 1e-6f);  // the host's exp differs in the last bits
        }
      }
}

// The pass over what was accepted is one launch, the K levels behind it another.
TEST_F(CudaDrafts, AChainIsOneLaunch) {
  Model m = bf16_model(cuda_shape());
  CudaRig rig(m, {.int4 = true});
  SamplingParams greedy;
  auto table = rig.table(6, 0);
  for (int32_t round = 1; round < 5; ++round) {
    auto made = jobs(round, Acceptance::kRejection, greedy);
    made.resize(1);
    made[0].committed = made[0].committed.first(1);
    made[0].n_draft = 4;
    made[0].blocks = table;
    std::vector<DraftTree> trees(1);
    ptxvm::clear_host_calls();
    const uint64_t before = ptxvm::n_launches();
    rig.backend->propose(made, trees);
    ptxvm::HostCalls calls = ptxvm::host_calls();
    EXPECT_EQ(trees[0].size(), 4);
    if (round > 1) {
      EXPECT_EQ(calls.graphs, 2u);
      EXPECT_EQ(calls.kernels + calls.memsets, 0u);
    }
    EXPECT_EQ(calls.copies, 3u);  // what the pass reads, what the levels read, the trees
    EXPECT_EQ(calls.waits, 1u);
    // A level: 5 per layer, one in front and one behind; head, slices, merge, grow.
    EXPECT_EQ(ptxvm::n_launches() - before, 4u * (5u * 2u + 2u + 4u));
  }
}

TEST_F(CudaDrafts, ATreeIsOneLaunch) {
  static constexpr int32_t kWidths[] = {2, 2, 1};
  Model m = bf16_model(cuda_shape());
  CudaRig rig(m, {.int4 = true});
  SamplingParams greedy;
  std::vector<std::vector<BlockId>> tables;
  for (int32_t s = 0; s < 3; ++s) tables.push_back(rig.table(6, 30 * s));
  for (int32_t round = 0; round < 5; ++round) {
    auto made = jobs(round, Acceptance::kRejection, greedy);
    for (size_t s = 0; s < 3; ++s) {
      made[s].committed = made[s].committed.first(round == 0 ? 5 + s : 1);
      made[s].n_draft = 10;
      made[s].widths = kWidths;
      made[s].blocks = tables[s];
    }
    std::vector<DraftTree> trees(3);
    ptxvm::clear_host_calls();
    const uint64_t before = ptxvm::n_launches();
    rig.backend->propose(made, trees);
    ptxvm::HostCalls calls = ptxvm::host_calls();
    if (round > 1) {
      EXPECT_EQ(calls.graphs, 2u);
      EXPECT_EQ(calls.kernels + calls.memsets, 0u);
      // The pass over the committed tokens and two that feed nodes: 5 per layer and 2, and in the
      // last, whose 16 rows are more than a product makes norms of, three norms; three
      // levels: head, slices, merge, grow; nodes placed twice.
      EXPECT_EQ(ptxvm::n_launches() - before, 3u * (5u * 2u + 2u) + 3u + 3u * 4u + 2u);
    }
    EXPECT_EQ(calls.copies, 3u);
    EXPECT_EQ(calls.waits, 1u);
    for (const DraftTree& tree : trees) EXPECT_EQ(tree.size(), 10);
  }
}

}  // namespace
}  // namespace pf
