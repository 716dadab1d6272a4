// Truth: a transformer written out in float64 (tests/backend/tiny_model.h); and bit equality
// between all ways to compute one row (invariant 7).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/tiny_model.h"
#include "model/quantize.h"

namespace pf {
namespace {

using Weights = CpuOptions::Weights;

std::vector<const char*> instruction_sets() {
  std::vector<const char*> names = {"portable"};
  ThreadPool pool(1);
  Model m = tiny_model({});
  for (const char* name : {"avx2", "avx512"}) {
    CpuOptions o;
    o.instruction_set = name;
    o.n_blocks = 1;
    o.max_context = 16;
    if (make_cpu_backend(m, nullptr, o, pool).ok()) names.push_back(name);
  }
  return names;
}

struct Rig {
  explicit Rig(const Model& model, Weights weights = Weights::kBf16, const char* isa = "",
               int threads = 2, bool int8_kv = false)
      : pool(threads) {
    CpuOptions o;
    o.int8_kv = int8_kv;
    o.weights = weights;
    o.n_blocks = 300;
    o.block_tokens = 4;
    o.max_rows = 700;
    o.max_context = 700;
    o.instruction_set = isa;
    backend = make_cpu_backend(model, nullptr, o, pool).take();
    V = model.config.vocabulary_size;
  }
  // Block ids in a scattered order, different for each table.
  std::vector<BlockId> table(int32_t n, int32_t first) {
    std::vector<BlockId> t;
    for (int32_t i = 0; i < n; ++i) t.push_back((first + i * 7) % 300);
    return t;
  }
  std::vector<std::vector<float>> logits(int32_t n) {
    std::vector<float> flat(static_cast<size_t>(n * V));
    backend->read_logits(0, n, {flat.data(), {n, V}});
    std::vector<std::vector<float>> rows;
    for (int32_t i = 0; i < n; ++i)
      rows.emplace_back(flat.begin() + i * V, flat.begin() + (i + 1) * V);
    return rows;
  }
  ThreadPool pool;
  std::unique_ptr<Backend> backend;
  int64_t V;
};

std::vector<int32_t> text(int32_t n, int32_t seed = 0) {
  std::vector<int32_t> t;
  for (int32_t i = 0; i < n; ++i) t.push_back((i * i * 31 + i * 7 + seed * 13) % 101);
  return t;
}

TEST(Forward, MatchesTheDefinitionInFloat32) {
  std::vector<TinyShape> shapes = {
      {},
      {.bias = true},
      {.sliding_window = 7},
      {.heads = 3, .kv_heads = 3, .vocabulary = 77},
      {.width = 33, .ffn = 47, .heads = 4, .kv_heads = 1, .head_width = 32}};
  for (const TinyShape& shape : shapes) {
    Model m = tiny_model(shape);
    std::vector<int32_t> t = text(40);
    for (int32_t& id : t) id %= static_cast<int32_t>(shape.vocabulary);
    auto want = define_logits(m, t);
    for (const char* isa : instruction_sets()) {
      Rig rig(m, Weights::kF32, isa);
      auto table = rig.table(20, 3);
      Batch batch;
      batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
      rig.backend->forward(batch);
      auto got = rig.logits(40);
      // Logits are about 7; float32 sums of some hundred terms through 2 layers stay below 1e-4.
      for (size_t p = 0; p < 40; ++p)
        for (size_t i = 0; i < want[p].size(); ++i)
          ASSERT_NEAR(got[p][i], want[p][i], 2e-4) << isa << " position " << p;
    }
  }
}

// With keys and values as the weights go, or in int8.
class ForwardOf : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Kv, ForwardOf, testing::Bool(),
                         [](const auto& info) { return info.param ? "Int8Kv" : "PlainKv"; });

TEST_P(ForwardOf, ChunkedPromptsAndDecodeGiveTheBitsOfOnePass) {
  for (Weights weights : {Weights::kF32, Weights::kBf16, Weights::kInt8, Weights::kInt4})
    for (const char* isa : instruction_sets()) {
      Model m = tiny_model({.sliding_window = weights == Weights::kBf16 ? 300 : 0});
      Rig rig(m, weights, isa, 2, GetParam());
      std::vector<int32_t> t = text(560);  // three splits of attention
      auto table = rig.table(141, 3);
      Batch batch;
      batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
      rig.backend->forward(batch);
      auto whole = rig.logits(560);
      auto other = rig.table(141, 150);
      for (int32_t at = 0, chunk = 1; at<560; chunk = at> 500 ? 1 : chunk * 3 % 101 + 1) {
        int32_t n = std::min(chunk, 560 - at);
        batch.clear();
        batch.add(std::span(t).subspan(static_cast<size_t>(at), static_cast<size_t>(n)), at,
                  nullptr, other, Batch::Logits::kAll);
        rig.backend->forward(batch);
        auto part = rig.logits(n);
        for (int32_t i = 0; i < n; ++i)
          ASSERT_EQ(part[static_cast<size_t>(i)], whole[static_cast<size_t>(at + i)])
              << isa << " row " << at + i;
        at += n;
      }
    }
}

TEST_P(ForwardOf, TreeNodesHaveTheBitsOfTheirChains) {
  for (const char* isa : instruction_sets()) {
    Model m = tiny_model({});
    Rig rig(m, Weights::kBf16, isa, 2, GetParam());
    std::vector<int32_t> t = text(250);  // the tree's paths cross the split at 256
    DraftTree tree;
    for (int32_t i = 0; i < 3; ++i) tree.add_one_hot(10 + i, -1);
    for (int32_t i = 0; i < 3; ++i) tree.add_one_hot(20 + i, i);
    tree.add_one_hot(30, 4);
    tree.add_one_hot(31, 4);
    for (int32_t d = 0; d < 6; ++d) tree.add_one_hot(40 + d, tree.size() - 1);
    auto table = rig.table(70, 0), chain_table = rig.table(70, 100);
    Batch batch;
    batch.add(std::span(t).first(249), 0, nullptr, table, Batch::Logits::kNone);
    rig.backend->forward(batch);
    batch.clear();
    batch.add(std::span(t).last(1), 249, &tree, table, Batch::Logits::kLast);
    rig.backend->forward(batch);
    auto rows = rig.logits(1 + tree.size());
    for (int32_t node = 0; node < tree.size(); ++node) {
      std::vector<int32_t> path;
      for (int32_t n = node; n >= 0; n = tree.parents[static_cast<size_t>(n)])
        path.insert(path.begin(), tree.tokens[static_cast<size_t>(n)]);
      std::vector<int32_t> chain = t;
      chain.insert(chain.end(), path.begin(), path.end());
      batch.clear();
      batch.add(chain, 0, nullptr, chain_table, Batch::Logits::kLast);
      rig.backend->forward(batch);
      ASSERT_EQ(rig.logits(1)[0], rows[static_cast<size_t>(node + 1)]) << isa << " node " << node;
    }
    // The accepted path, moved to its place, reads as if it had always been there.
    int32_t leaf = tree.size() - 1;
    std::vector<int32_t> path;
    for (int32_t n = leaf; n >= 0; n = tree.parents[static_cast<size_t>(n)])
      path.insert(path.begin(), n);
    batch.clear();
    batch.add(std::span(t).last(1), 249, &tree, table, Batch::Logits::kLast);
    rig.backend->forward(batch);
    std::vector<SlotMove> moves;
    std::vector<int32_t> chain = t;
    for (size_t j = 0; j < path.size(); ++j) {
      moves.push_back({table, static_cast<int32_t>(batch.segments[0].node_slot(path[j])),
                       static_cast<int32_t>(250 + j)});
      chain.push_back(tree.tokens[static_cast<size_t>(path[j])]);
    }
    rig.backend->move_slots(moves);
    std::vector<int32_t> next = {55};
    batch.clear();
    batch.add(next, static_cast<int64_t>(chain.size()), nullptr, table, Batch::Logits::kLast);
    rig.backend->forward(batch);
    auto after = rig.logits(1)[0];
    chain.push_back(55);
    batch.clear();
    batch.add(chain, 0, nullptr, chain_table, Batch::Logits::kLast);
    rig.backend->forward(batch);
    ASSERT_EQ(rig.logits(1)[0], after);
  }
}

TEST_P(ForwardOf, NeighboursThreadsAndSharedBlocksChangeNoBit) {
  for (const char* isa : instruction_sets())
    for (int threads : {1, 3}) {
      Model m = tiny_model({});
      Rig rig(m, Weights::kBf16, isa, threads, GetParam());
      Rig alone(m, Weights::kBf16, isa, 2, GetParam());
      // Five sequences over one prefix of 520 tokens (two whole splits), with ends of their own.
      std::vector<int32_t> prefix = text(520);
      auto shared = rig.table(130, 0);
      Batch batch;
      batch.add(prefix, 0, nullptr, shared, Batch::Logits::kNone);
      rig.backend->forward(batch);
      std::vector<std::vector<BlockId>> tables;
      std::vector<std::vector<int32_t>> ends;
      std::vector<DraftTree> trees(5);
      BlockId fresh = 0;
      std::vector<char> used(300, 0);
      for (BlockId b : shared) used[static_cast<size_t>(b)] = 1;
      for (int32_t s = 0; s < 5; ++s) {
        tables.push_back(shared);
        for (int32_t i = 0; i < 6; ++i) {
          while (used[static_cast<size_t>(fresh)]) ++fresh;
          tables.back().push_back(fresh++);
        }
        ends.push_back(text(1 + 2 * s, s));
        for (int32_t d = 0; d < s; ++d) trees[static_cast<size_t>(s)].add_one_hot(60 + d, d - 1);
      }
      batch.clear();
      for (size_t s = 0; s < 5; ++s)
        batch.add(ends[s], 520, &trees[s], tables[s], Batch::Logits::kAll);
      rig.backend->forward(batch);
      auto together = rig.logits(static_cast<int32_t>(batch.logit_rows.size()));
      size_t row = 0;
      for (size_t s = 0; s < 5; ++s) {
        std::vector<int32_t> all = prefix;
        all.insert(all.end(), ends[s].begin(), ends[s].end());
        all.insert(all.end(), trees[s].tokens.begin(), trees[s].tokens.end());
        auto own = alone.table(150, 11);
        batch.clear();
        batch.add(all, 0, nullptr, own, Batch::Logits::kAll);
        alone.backend->forward(batch);
        auto rows = alone.logits(static_cast<int32_t>(all.size()));
        for (size_t i = 520; i < all.size(); ++i)
          ASSERT_EQ(together[row++], rows[i]) << isa << " sequence " << s;
      }
    }
}

TEST_P(ForwardOf, CopiedBlocksReadLikeTheirSource) {
  Model m = tiny_model({});
  Rig rig(m, Weights::kBf16, "", 2, GetParam());
  std::vector<int32_t> t = text(10);
  std::vector<BlockId> a = {1, 2, 3}, b = {1, 2, 9};
  Batch batch;
  batch.add(t, 0, nullptr, a, Batch::Logits::kNone);
  rig.backend->forward(batch);
  std::vector<BlockCopy> copies = {{3, 9}};
  rig.backend->copy_blocks(copies);
  std::vector<int32_t> next = {5};
  batch.clear();
  batch.add(next, 10, nullptr, a, Batch::Logits::kLast);
  batch.add(next, 10, nullptr, b, Batch::Logits::kLast);
  rig.backend->forward(batch);
  auto rows = rig.logits(2);
  EXPECT_EQ(rows[0], rows[1]);
}

TEST(Propose, AChainIsTheDraftsOwnGreedyText) {
  Model m = tiny_model({});
  Rig rig(m);
  std::vector<int32_t> t = text(30);
  auto table = rig.table(20, 0), other = rig.table(20, 150);
  SamplingParams greedy;
  StopParams stop;
  ProposeJob job;
  job.committed = t;
  job.blocks = table;
  job.n_draft = 6;
  job.params = &greedy;
  job.stop = &stop;
  DraftTree tree;
  rig.backend->propose({&job, 1}, {&tree, 1});
  ASSERT_EQ(tree.size(), 6);
  for (int32_t d = 0; d < 6; ++d) {
    Batch batch;
    batch.add(t, 0, nullptr, other, Batch::Logits::kLast);
    rig.backend->forward(batch);
    int32_t want = argmax(rig.logits(1)[0]);
    EXPECT_EQ(tree.tokens[static_cast<size_t>(d)], want);
    EXPECT_EQ(tree.parents[static_cast<size_t>(d)], d - 1);
    t.push_back(want);
  }
}

TEST(Propose, ATreeHoldsTheLikeliestChildrenOfEachNode) {
  Model m = tiny_model({});
  Rig rig(m);
  std::vector<int32_t> t = text(30);
  auto table = rig.table(20, 0), other = rig.table(20, 150);
  SamplingParams greedy;
  StopParams stop;
  std::vector<int32_t> widths = {3, 2, 1};
  ProposeJob job;
  job.committed = t;
  job.blocks = table;
  job.n_draft = 15;
  job.widths = widths;
  job.params = &greedy;
  job.stop = &stop;
  DraftTree tree;
  rig.backend->propose({&job, 1}, {&tree, 1});
  ASSERT_EQ(tree.size(), 15);
  std::map<int32_t, std::vector<int32_t>> children;
  for (int32_t n = 0; n < 15; ++n)
    children[tree.parents[static_cast<size_t>(n)]].push_back(tree.tokens[static_cast<size_t>(n)]);
  for (auto& [node, tokens] : children) {
    std::vector<int32_t> path = t;
    std::vector<int32_t> up;
    for (int32_t n = node; n >= 0; n = tree.parents[static_cast<size_t>(n)])
      up.insert(up.begin(), tree.tokens[static_cast<size_t>(n)]);
    path.insert(path.end(), up.begin(), up.end());
    Batch batch;
    batch.add(path, 0, nullptr, other, Batch::Logits::kLast);
    rig.backend->forward(batch);
    TokenLogprob top = logprobs_of(rig.logits(1)[0], 0, static_cast<int32_t>(tokens.size()));
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], top.top[i].token);
  }
}

TEST(Propose, JobsDoNotDisturbEachOther) {
  Model m = tiny_model({});
  Rig rig(m);
  SamplingParams warm;
  warm.temperature = 0.8f;
  StopParams stop;
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::vector<BlockId>> tables;
  std::vector<ProposeJob> jobs;
  for (int32_t j = 0; j < 6; ++j) {
    texts.push_back(text(5 + 3 * j, j));
    std::vector<BlockId> own;
    for (int32_t i = 0; i < 12; ++i) own.push_back(12 * j + i);
    tables.push_back(own);
  }
  for (int32_t j = 0; j < 6; ++j) {
    ProposeJob job;
    job.committed = texts[static_cast<size_t>(j)];
    job.blocks = tables[static_cast<size_t>(j)];
    job.n_draft = j;
    job.params = &warm;
    job.stop = &stop;
    job.key = {static_cast<uint64_t>(j), 0};
    jobs.push_back(job);
  }
  std::vector<DraftTree> together(6), alone(6);
  rig.backend->propose(jobs, together);
  for (size_t j = 0; j < 6; ++j) {
    rig.backend->propose({&jobs[j], 1}, {&alone[j], 1});
    EXPECT_EQ(together[j].tokens, alone[j].tokens);
    EXPECT_EQ(together[j].size(), static_cast<int32_t>(j));
    for (int32_t n = 0; n < alone[j].size(); ++n) {
      double sum = 0;
      for (auto& e : alone[j].q(n)) sum += e.probability;
      EXPECT_NEAR(sum, 1, 1e-5) << "a sampled chain carries the q that it was drawn from";
    }
  }
}

TEST(Propose, MoreRowsThanAPassHoldsRunInTurns) {
  Model m = tiny_model({});
  Rig wide(m);
  CpuOptions o;
  o.n_blocks = 300;
  o.block_tokens = 4;
  o.max_rows = 8;  // a whole tree of 64 nodes fits all the same
  o.max_context = 700;
  auto narrow = make_cpu_backend(m, nullptr, o, wide.pool).take();
  SamplingParams greedy;
  StopParams stop;
  std::vector<int32_t> widths = {3, 2, 1, 1, 1, 1, 1, 1};
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::vector<BlockId>> tables;
  for (int32_t j = 0; j < 7; ++j) {
    texts.push_back(text(30 + j, j));
    tables.emplace_back();
    for (int32_t i = 0; i < 25; ++i) tables.back().push_back(25 * j + i);
  }
  std::vector<ProposeJob> jobs(7);
  for (size_t j = 0; j < 7; ++j) {
    jobs[j].committed = texts[j];
    jobs[j].blocks = tables[j];
    jobs[j].n_draft = 40;
    if (j % 2) jobs[j].widths = widths;
    jobs[j].params = &greedy;
    jobs[j].stop = &stop;
  }
  std::vector<DraftTree> once(7), turns(7);
  wide.backend->propose(jobs, once);
  narrow->propose(jobs, turns);
  for (size_t j = 0; j < 7; ++j) {
    EXPECT_GT(once[j].size(), 30);
    EXPECT_EQ(once[j].tokens, turns[j].tokens);
    EXPECT_EQ(once[j].parents, turns[j].parents);
  }
}

// An exit behind n layers says what the model of the first n layers says, and leaves no trace in
// what the whole model says afterwards.
TEST(EarlyExit, IsTheModelOfTheFirstLayersAndLeavesNoTrace) {
  Model m = tiny_model({.layers = 4});
  std::vector<int32_t> t = text(30);
  SamplingParams greedy;
  StopParams stop;
  for (int32_t n : {1, 2, 4}) {
    Model first = first_layers(m, n).take();
    Rig whole(m), part(first), untouched(m);
    std::vector<BlockId> blocks = whole.table(20, 5);
    auto feed = [&](Rig* rig) {
      Batch batch;
      batch.add(std::span(t).first(29), 0, nullptr, blocks, Batch::Logits::kNone);
      rig->backend->forward(batch);
    };
    for (Rig* rig : {&whole, &part, &untouched}) feed(rig);
    for (const std::vector<int32_t>& widths : {std::vector<int32_t>{}, {3, 2, 1}}) {
      ProposeJob job;
      job.committed = std::span(t).last(1);
      job.base = 29;
      job.blocks = blocks;
      job.n_draft = widths.empty() ? 5 : 15;
      job.widths = widths;
      job.params = &greedy;
      job.stop = &stop;
      DraftTree early, own;
      whole.backend->propose_early(n, {&job, 1}, {&early, 1});
      part.backend->propose({&job, 1}, {&own, 1});
      EXPECT_EQ(early.tokens, own.tokens);
      EXPECT_EQ(early.scores, own.scores);
      Batch batch;
      batch.add(std::span(t).last(1), 29, &early, blocks, Batch::Logits::kLast);
      whole.backend->forward(batch);
      untouched.backend->forward(batch);
      EXPECT_EQ(whole.logits(1 + early.size()), untouched.logits(1 + early.size()));
    }
  }
}

// A tied head is kept once; an equal one of its own beside the embedding gives the same bits.
TEST(Forward, ATiedHeadIsTheEmbeddingToo) {
  for (Weights weights : {Weights::kF32, Weights::kBf16, Weights::kInt4}) {
    Model tied = tiny_model({}), apart = tiny_model({});
    std::span<std::byte> copy = apart.storage.allocate(apart.head.data.size());
    std::memcpy(copy.data(), apart.head.data.data(), copy.size());
    apart.head.data = copy;
    Rig one(tied, weights), two(apart, weights);
    std::vector<int32_t> tokens = text(40);
    for (Rig* rig : {&one, &two}) {
      std::vector<BlockId> table = rig->table(20, 0);
      Batch batch;
      batch.add(tokens, 0, nullptr, table, Batch::Logits::kAll);
      rig->backend->forward(batch);
    }
    EXPECT_EQ(one.logits(40), two.logits(40));
    int64_t table_bytes = two.backend->info().weight_bytes - one.backend->info().weight_bytes;
    EXPECT_EQ(table_bytes > 0, weights != Weights::kInt4) << "a quantised head is no embedding";
  }
}

double rms(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double sum = 0, n = 0;
  for (size_t r = 0; r < a.size(); ++r)
    for (size_t i = 0; i < a[r].size(); ++i, ++n) {
      double d = static_cast<double>(a[r][i]) - b[r][i];
      sum += d * d;
    }
  return std::sqrt(sum / n);
}

// A file whose blocks share scales by fours: fewer bytes, the same bits token by token as in one
// pass, and as near to the weights' own product as their blocks of 32 but for the activations,
// whose int8 has one scale for as many: the largest of 128 normal values is 1.3 times that of 32,
// and the error is in proportion to it. Twice is allowed.
TEST(Forward, Int4GroupsOf128ReadLessAndKeepTheBitsOfOneRow) {
  ThreadPool pool(1);
  const TinyShape shape = {.width = 128, .ffn = 128, .heads = 4, .head_width = 32};
  Model m =
      quantize_model(tiny_model(shape), {TensorType::kQ4_1, TensorType::kQ8_0, 128}, pool).take();
  const std::vector<int32_t> t = text(12);
  const std::vector<BlockId> exact_table = {0, 1, 2, 3};
  Rig exact(m, Weights::kF32);
  Batch exact_batch;
  exact_batch.add(t, 0, nullptr, exact_table, Batch::Logits::kAll);
  exact.backend->forward(exact_batch);
  const auto want = exact.logits(12);
  for (const char* isa : instruction_sets()) {
    std::vector<double> errors;
    std::vector<int64_t> bytes;
    for (int group : {128, 32}) {
      m.config.int4_group = group;
      Rig rig(m, Weights::kInt4, isa);
      const std::vector<BlockId> table = rig.table(4, 0), other = rig.table(4, 50);
      Batch batch;
      batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
      rig.backend->forward(batch);
      const auto together = rig.logits(12);
      errors.push_back(rms(together, want));
      bytes.push_back(rig.backend->info().bytes_per_step);
      for (int32_t i = 0; i < 12; ++i) {
        batch.clear();
        batch.add(std::span(t).subspan(static_cast<size_t>(i), 1), i, nullptr, other,
                  Batch::Logits::kAll);
        rig.backend->forward(batch);
        EXPECT_EQ(rig.logits(1)[0], together[static_cast<size_t>(i)]) << isa << " token " << i;
      }
    }
    EXPECT_GT(errors[0], 0) << "the activations are quantised";
    EXPECT_LT(errors[0], 2 * errors[1]) << isa;
    // Of a layer: 16 tiles of q, k and v (width 128), 8 of o, 16 of gate and up, 8 of down.
    EXPECT_EQ(bytes[1] - bytes[0], 2 * (16 + 8 + 16 + 8) * (4 * 320 - 1088)) << isa;
  }
}

}  // namespace
}  // namespace pf
