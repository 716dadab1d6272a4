// Truth: src/sampling/grow.cc, tree by tree: the same tokens, parents, q and scores, for chains and
// trees, every rule, reduced heads; grown in one captured graph.
#include <gtest/gtest.h>

#include "kernels/budget.h"
#include "kernels/draft.h"
#include "kernels/draft_toy.h"
#include "kernels/sampling_case.h"
#include "ptxvm/ptxvm.h"
#include "sampling/grow.h"

namespace pf::kernels {
namespace {

using Rng = std::mt19937_64;
int between(Rng& rng, int first, int last) {
  return std::uniform_int_distribution<int>(first, last)(rng);
}
float real(Rng& rng, float first, float last) {
  return std::uniform_real_distribution<float>(first, last)(rng);
}

// A draft to be grown: how, and what its model says behind each token.
struct Draft {
  SamplingParams params;
  StopParams stop;
  NoiseKey key;
  std::optional<TokenCounts> counts;
  int64_t position = 0;
  int32_t n_generated = 0;
  int32_t n_draft = 0;
  bool coupled = false;
  int32_t last_token = 0;  // the committed one
};

struct Model {
  int V = 0;                         // width of the head
  std::vector<int32_t> head_tokens;  // empty: token = place
  std::vector<float> table;          // [tokens, V]
  int n_tokens() const { return head_tokens.empty() ? V : head_tokens.back() + 1; }
  std::span<const float> row(int32_t token) const {
    return {table.data() + static_cast<size_t>(token * V), static_cast<size_t>(V)};
  }
};

Model random_model(Rng& rng, int V, bool reduced) {
  Model m;
  m.V = V;
  for (int i = 0, t = 0; reduced && i < V; ++i, t += between(rng, 1, 3)) m.head_tokens.push_back(t);
  m.table.resize(static_cast<size_t>(m.n_tokens() * V));
  const float grid = between(rng, 0, 2) == 0 ? 0.5f : 0;
  for (float& l : m.table) {
    l = std::normal_distribution<float>(0, 2.5f)(rng);
    if (grid > 0) l = std::round(l / grid) * grid;
  }
  for (int32_t t = 0; t < m.n_tokens(); ++t)  // some rows are ill
    if (between(rng, 0, 40) == 0)
      m.table[static_cast<size_t>(t * V + between(rng, 0, V - 1))] = NAN;
  return m;
}

Draft random_draft(Rng& rng, int n_tokens, int max_nodes) {
  Draft d;
  SamplingParams& p = d.params;
  if (between(rng, 0, 4) > 0) p.temperature = real(rng, 0.2f, 2.0f);
  if (between(rng, 0, 2) == 0) p.top_k = between(rng, 1, 40);
  if (between(rng, 0, 2) == 0) p.top_p = real(rng, 0.1f, 1.0f);
  if (between(rng, 0, 3) == 0) p.min_p = real(rng, 0.001f, 0.3f);
  if (between(rng, 0, 2) == 0) {
    p.presence_penalty = real(rng, -1, 2);
    p.frequency_penalty = real(rng, -1, 1);
    p.repetition_penalty = real(rng, 0.8f, 1.6f);
    d.counts.emplace();
    for (int i = between(rng, 0, 8); i > 0; --i)
      d.counts->add_prompt(std::vector<int32_t>{between(rng, 0, n_tokens - 1)});
    for (int i = between(rng, 0, 8); i > 0; --i)
      d.counts->add_output(between(rng, 0, n_tokens - 1));
  }
  for (int t = between(rng, -3, std::min(3, n_tokens - 1)); t >= 0; --t)
    p.logit_bias.push_back({t, between(rng, 0, 2) ? real(rng, -4, 4) : pf::kBannedBias});
  for (int i = between(rng, 0, 3); i > 0; --i)
    d.stop.end_ids.push_back(between(rng, 0, n_tokens - 1));
  std::sort(d.stop.end_ids.begin(), d.stop.end_ids.end());
  d.stop.min_new_tokens = between(rng, 0, 8);
  d.key = {rng(), static_cast<uint32_t>(between(rng, 0, 3))};
  d.position = between(rng, 0, 100000);
  d.n_generated = between(rng, 0, 6);
  d.n_draft = between(rng, 0, 5) ? between(rng, 1, max_nodes) : 0;
  d.coupled = between(rng, 0, 2) == 0;
  d.last_token = between(rng, 0, n_tokens - 1);
  return d;
}

// The likeliest tokens of a row, as the CPU backend finds them.
std::vector<TokenProbability> most_likely(const Model& m, std::span<const float> row, int n) {
  std::vector<TokenProbability> top;
  for (size_t i = 0; i < row.size(); ++i)
    top.push_back({m.head_tokens.empty() ? static_cast<int32_t>(i) : m.head_tokens[i], row[i]});
  std::sort(top.begin(), top.end(), [](const TokenProbability& a, const TokenProbability& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
  });
  top.resize(std::min(top.size(), static_cast<size_t>(n)));
  return top;
}

DraftTree grow_on_host(const Model& m, Draft* d, const std::vector<int>& widths, int n) {
  DraftTree tree;
  std::vector<int32_t> open{DraftTree::kRoot};
  for (size_t level = 0; level < widths.size(); ++level) {
    std::vector<int32_t> next;
    for (int32_t node : open) {
      const int wanted = std::min(widths[level], d->n_draft - tree.size());
      auto row = m.row(node < 0 ? d->last_token : tree.tokens[static_cast<size_t>(node)]);
      if (wanted <= 0 || !all_finite(row)) continue;
      const auto depth = static_cast<int32_t>(level);
      GrowthPoint at{
          node,   d->position + depth, d->n_generated + depth, &d->params, &d->stop, nullptr,
          d->key, d->coupled};
      at.counts = d->counts ? &*d->counts : nullptr;
      const int32_t added = pf::add_children(at, most_likely(m, row, n), wanted, &tree);
      for (int32_t c = tree.size() - added; c < tree.size(); ++c) next.push_back(c);
    }
    open = next;
  }
  return tree;
}

// Captures what `work` enqueues, launches it once and waits.
template <class Work>
void launch_captured(Work work) {
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  work(stream);
  cuda_check(cudaStreamEndCapture(stream, &graph));
  cuda_check(cudaGraphInstantiate(&exec, graph, 0));
  cuda_check(cudaGraphLaunch(exec, stream));
  cuda_check(cudaStreamSynchronize(stream));
  cuda_check(cudaGraphExecDestroy(exec));
  cuda_check(cudaGraphDestroy(graph));
  cuda_check(cudaStreamDestroy(stream));
}

// All levels, captured once and launched once: no host in between.
std::vector<DraftTree> grow_on_device(const Model& m, const std::vector<Draft>& drafts,
                                      const std::vector<int>& widths, int n, int max_nodes) {
  const size_t B = drafts.size();
  const auto b = static_cast<int64_t>(B);
  DeviceRules lists;
  std::vector<GrowRules> grow;
  std::vector<int32_t> first_tokens;
  for (const Draft& d : drafts) {
    lists.add(d.params, d.stop, d.counts ? &*d.counts : nullptr, d.key, d.position, d.n_generated);
    grow.push_back({d.n_draft, d.coupled});
    first_tokens.push_back(d.last_token);
  }
  DeviceLists device_lists(lists);
  DeviceArray<SamplingRules> d_rules(lists.sampling);
  DeviceArray<GrowRules> d_grow(grow);
  DeviceArray<float> table(m.table);
  DeviceArray<int32_t> head(m.head_tokens);
  DeviceTrees trees(B, n * max_nodes);
  // One set of buffers per level, as wide as the level can be.
  std::vector<int64_t> places{1};
  for (int w : widths) places.push_back(std::min<int64_t>(places.back() * w, max_nodes));
  std::vector<std::unique_ptr<DeviceArray<int32_t>>> open, tokens, n_listed;
  std::vector<std::unique_ptr<DeviceArray<float>>> logits;
  std::vector<std::unique_ptr<DeviceArray<TokenValue>>> candidates;
  auto ints = [](auto x) { return std::make_unique<DeviceArray<int32_t>>(x); };
  for (size_t level = 0; level < places.size(); ++level) {
    const size_t R = B * static_cast<size_t>(places[level]);
    open.push_back(level == 0 ? ints(std::vector<int32_t>(B, kRootNode)) : ints(R));
    tokens.push_back(level == 0 ? ints(first_tokens) : ints(R));
    n_listed.push_back(ints(R));
    logits.push_back(std::make_unique<DeviceArray<float>>(R * static_cast<size_t>(m.V)));
    candidates.push_back(std::make_unique<DeviceArray<TokenValue>>(R * static_cast<size_t>(n)));
  }
  DeviceArray<TokenValue> slices(B * static_cast<size_t>(places.back() * n_slices_of(m.V) * n));
  launch_captured([&](cudaStream_t stream) {
    for (size_t l = 0; l < widths.size(); ++l) {
      const int64_t R = b * places[l], W = places[l], next = places[l + 1];
      toy_forward(logits[l]->data(), table.data(), tokens[l]->data(), open[l]->data(),
                  static_cast<int>(R), m.V, stream);
      list_candidates({candidates[l]->data(), {R, n}}, {n_listed[l]->data(), {R}},
                      {slices.data(), {R, n_slices_of(m.V), n}}, {logits[l]->data(), {R, m.V}},
                      {open[l]->data(), {R}},
                      {m.head_tokens.empty() ? nullptr : head.data(),
                       {static_cast<int64_t>(m.head_tokens.size())}},
                      stream);
      grow_trees(trees.trees(), {open[l + 1]->data(), {b, next}},
                 {tokens[l + 1]->data(), {b, next}}, {open[l]->data(), {b, W}},
                 {candidates[l]->data(), {R, n}}, {n_listed[l]->data(), {R}}, {d_rules.data(), {b}},
                 {d_grow.data(), {b}}, device_lists.lists(), widths[l], static_cast<int>(l) + 1,
                 max_nodes, stream);
    }
  });
  std::vector<DraftTree> out;
  for (size_t i = 0; i < B; ++i) out.push_back(trees.get(i));
  return out;
}

void expect_same_tree(const DraftTree& got, const DraftTree& want) {
  ASSERT_EQ(got.tokens, want.tokens);
  EXPECT_EQ(got.parents, want.parents);
  EXPECT_EQ(got.depths, want.depths);
  for (int32_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got.scores[static_cast<size_t>(i)], want.scores[static_cast<size_t>(i)]);
    auto a = got.q(i), b = want.q(i);
    ASSERT_EQ(a.size(), b.size()) << "q of node " << i;
    for (size_t e = 0; e < a.size(); ++e) {
      EXPECT_EQ(a[e].token, b[e].token);
      EXPECT_EQ(a[e].probability, b[e].probability);
    }
  }
}

struct Shape {
  int V, n;
  std::vector<int> widths;
  int max_nodes;
  bool reduced;
};
void PrintTo(const Shape& s, std::ostream* out) {
  *out << "V " << s.V << " n " << s.n << " levels " << s.widths.size();
}

class Grow : public testing::TestWithParam<Shape> {};

TEST_P(Grow, TheDeviceGrowsTheHostsTrees) {
  const Shape& s = GetParam();
  Rng rng(static_cast<uint64_t>(s.V * 131 + s.n));
  int n_nodes = 0, n_drawn = 0;
  for (uint32_t round = 0; round < 3; ++round) {
    ptxvm::settings().seed = round * 7;
    const Model m = random_model(rng, s.V, s.reduced);
    std::vector<Draft> drafts;
    // What is grown in all: about 40 drafts of a few nodes, fewer large ones.
    const int n_drafts = std::clamp(240 / s.max_nodes, 6, s.V > 4096 ? 10 : 40);
    for (int i = 0; i < n_drafts; ++i)
      drafts.push_back(random_draft(rng, m.n_tokens(), s.max_nodes));
    auto got = grow_on_device(m, drafts, s.widths, s.n, s.max_nodes);
    for (size_t i = 0; i < drafts.size(); ++i) {
      SCOPED_TRACE("round " + std::to_string(round) + " draft " + std::to_string(i));
      expect_same_tree(got[i], grow_on_host(m, &drafts[i], s.widths, s.n));
      n_nodes += got[i].size();
      n_drawn += !got[i].q_entries.empty();
      if (testing::Test::HasFailure()) break;
    }
  }
  EXPECT_GT(n_nodes, 12);
  EXPECT_GT(n_drawn, 3);
  ptxvm::settings().seed = 0;
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Grow,
    testing::Values(Shape{1, 1, {1}, 1, false}, Shape{5, 3, {1, 1, 1}, 3, false},
                    Shape{31, 31, {1, 1, 1, 1, 1}, 5, false}, Shape{33, 32, {3, 2, 2}, 14, false},
                    Shape{129, 33, {4, 2, 1}, 20, true}, Shape{200, 128, {1, 1, 1, 1}, 4, true},
                    Shape{200, 128, {8, 3, 2}, 64, false}, Shape{300, 256, {2, 2}, 6, false},
                    Shape{4097, 64, {1, 1}, 2, false}));

// One row listed on the device, against its full sort.
void expect_listed(const std::vector<float>& row, int64_t n, std::vector<int32_t> head = {}) {
  const auto V = static_cast<int64_t>(row.size());
  DeviceArray<float> logits(row);
  DeviceArray<int32_t> open(std::vector<int32_t>{kRootNode}), listed(size_t{1}), d_head(head);
  DeviceArray<TokenValue> out(static_cast<size_t>(n)),
      slices(static_cast<size_t>(n_slices_of(V) * n));
  list_candidates(
      {out.data(), {1, n}}, {listed.data(), {1}}, {slices.data(), {1, n_slices_of(V), n}},
      {logits.data(), {1, V}}, {open.data(), {1}},
      {head.empty() ? nullptr : d_head.data(), {static_cast<int64_t>(head.size())}}, nullptr);
  cuda_check(cudaDeviceSynchronize());
  if (!all_finite(row)) {
    EXPECT_EQ(listed.host()[0], 0);
    return;
  }
  auto want = most_likely({static_cast<int>(V), head, {}}, row, static_cast<int>(n));
  ASSERT_EQ(listed.host()[0], static_cast<int32_t>(want.size()));
  std::vector<TokenValue> got(want.size());
  cuda_check(
      cudaMemcpy(got.data(), out.data(), got.size() * sizeof(TokenValue), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].token, want[i].token) << "place " << i;
    ASSERT_EQ(got[i].value, want[i].probability);
  }
}

std::vector<float> normal_row(uint64_t seed, size_t V, float grid = 0) {
  std::vector<float> row(V);
  Rng rng(seed);
  for (float& l : row) {
    l = std::normal_distribution<float>(0, 3)(rng);
    if (grid > 0) l = std::round(l / grid) * grid;
  }
  return row;
}

// The hard rows: equal logits in several slices, the border of a slice, the lowest finite value.
void list_hard_rows() {
  expect_listed(std::vector<float>(9000, 1.5f), 66);
  expect_listed(normal_row(1, 9001, 1), 255);
  expect_listed(normal_row(2, kSlice + 1), 256);
  expect_listed(std::vector<float>(100, -3.402823466e38f), 256);
  expect_listed(std::vector<float>{3.0e38f, -3.0e38f, 0.0f, -0.0f, 3.0e38f}, 3);
  std::vector<int32_t> head;
  for (int32_t i = 0; i < 5000; ++i) head.push_back(3 * i + 1);
  expect_listed(normal_row(3, 5000, 0.5f), 33, head);
  for (size_t at : {size_t{0}, size_t{4095}, size_t{4096}}) {
    std::vector<float> ill = normal_row(4, 4097);
    ill[at] = INFINITY;
    expect_listed(ill, 35);
  }
}

TEST(Candidates, HardRowsAreListedAsASortDoes) {
  list_hard_rows();
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

TEST(DraftBudget, TheDraftsReachTheKernels) {
  ptxvm::clear_measures();
  Rng rng(5);
  for (const Shape& s : {Shape{129, 35, {3, 2, 1}, 12, true}, Shape{5000, 66, {1, 1}, 2, false}}) {
    const Model m = random_model(rng, s.V, s.reduced);
    std::vector<Draft> drafts;
    for (int i = 0; i < 30; ++i) drafts.push_back(random_draft(rng, m.n_tokens(), s.max_nodes));
    grow_on_device(m, drafts, s.widths, s.n, s.max_nodes);
  }
  list_hard_rows();
  expect_within({0.95, 100, 100}, "slice_kernel");
  expect_within({0.95, 100, 100}, "merge_kernel");
  expect_within({0.95, 100, 100}, "grow_kernel");
}

// A row as wide as a real one: neighbours read neighbours, so sectors are full. The atomics on bins
// collide as the values do; twice the ideal is what normal logits were seen to cost.
TEST(DraftBudget, LongRowsMoveFullSectors) {
  ptxvm::clear_measures();
  expect_listed(normal_row(6, 32768), 128);
  expect_within({0, 2.5, 1.05}, "slice_kernel");
}

TEST(Candidates, NothingIsDoneForNoRows) {
  const uint64_t before = ptxvm::n_launches();
  list_candidates({nullptr, {0, 4}}, {nullptr, {0}}, {nullptr, {0, 1, 4}}, {nullptr, {0, 9}},
                  {nullptr, {0}}, {nullptr, {0}}, nullptr);
  DraftTrees none{};
  none.q_capacity = 16;
  grow_trees(none, {nullptr, {0, 4}}, {nullptr, {0, 4}}, {nullptr, {0, 1}}, {nullptr, {0, 4}},
             {nullptr, {0}}, {nullptr, {0}}, {nullptr, {0}}, {}, 1, 1, 4, nullptr);
  EXPECT_EQ(ptxvm::n_launches(), before);
}

}  // namespace
}  // namespace pf::kernels
