// Truth: softmax attention as a float64 loop over the positions that a row sees; and the bits of a
// row alone, which no neighbour and no shared block may change.
#include "backend/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace pf {
namespace {

struct Shape {
  int64_t heads, kv_heads, head_width, window;
  int32_t block_tokens;
  bool f32;
};

std::vector<const CpuKernels*> all_kernels() {
  std::vector<const CpuKernels*> k = {kernels_portable()};
  for (const CpuKernels* more : {kernels_avx2(), kernels_avx512()})
    if (more) k.push_back(more);
  return k;
}

constexpr int32_t kBlocks = 120;
constexpr int64_t kContext = 700;

struct Token {
  std::vector<float> key, value;
};

// A plane of random keys and values (rounded to its type), and attention over it.
struct Rig {
  explicit Rig(const Shape& shape)
      : s(shape), plane(1, kBlocks, s.kv_heads, s.block_tokens, s.head_width, s.f32) {
    std::mt19937 rng(7);
    std::normal_distribution<float> normal(0, 1);
    std::vector<BlockId> all(kBlocks);
    std::iota(all.begin(), all.end(), 0);
    for (BlockId b = 0; b < kBlocks; ++b)
      for (int64_t p = 0; p < s.block_tokens; ++p)
        for (int64_t g = 0; g < s.kv_heads; ++g) {
          Token token;
          for (std::vector<float>* v : {&token.key, &token.value})
            for (int64_t d = 0; d < s.head_width; ++d) {
              float x = normal(rng);
              v->push_back(s.f32 ? x : to_float(to_bf16(x)));
            }
          int64_t slot = b * s.block_tokens + p;
          plane.store(0, Segment{0, 1, 1, 0, all}, slot, g, token.key.data(), token.value.data());
          tokens[{slot, g}] = std::move(token);
        }
  }

  // Queries depend on token and position alone, so that a row can be met again in another batch.
  std::vector<float> queries(const Batch& batch) const {
    std::vector<float> q;
    for (size_t r = 0; r < batch.tokens.size(); ++r) {
      std::mt19937 rng(static_cast<uint32_t>(batch.tokens[r] * 1000 + batch.positions[r]));
      std::normal_distribution<float> normal(0, 0.5f);
      for (int64_t i = 0; i < s.heads * s.head_width; ++i) q.push_back(normal(rng));
    }
    return q;
  }

  // The longer the context that attention is made for, the more splits share a wave.
  std::vector<float> run(const CpuKernels& kernels, const Batch& batch, int threads,
                         int64_t context = kContext) const {
    Attention attention(s.heads, s.kv_heads, s.head_width, s.window, batch.n_rows(), context,
                        threads);
    std::vector<float> q = queries(batch), out(q.size() + 512, 7.0f);
    attention.plan(batch, plane);
    ThreadPool pool(threads);
    pool.run([&](int thread) {
      attention.run(kernels, batch, plane, 0, q.data(), s.heads * s.head_width, out.data(), thread,
                    pool.barrier());
    });
    for (size_t i = q.size(); i < out.size(); ++i) EXPECT_EQ(out[i], 7.0f) << "behind the end";
    out.resize(q.size());
    return out;
  }

  const Token& token(const Segment& segment, int64_t slot, int64_t kv_head) const {
    BlockId block = segment.blocks[static_cast<size_t>(slot / s.block_tokens)];
    return tokens.at({block * s.block_tokens + slot % s.block_tokens, kv_head});
  }

  std::vector<double> truth(const Batch& batch, int32_t row, int64_t head, const float* q) const {
    size_t r = static_cast<size_t>(row);
    const Segment& segment = batch.segments[static_cast<size_t>(batch.row_segment[r])];
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < batch.visible[r]; ++p) slots.push_back(p);
    for (int32_t i = 0; i < 64; ++i)
      if (batch.masks[r] >> i & 1) slots.push_back(segment.node_slot(i));
    int64_t n = static_cast<int64_t>(slots.size()), g = head / (s.heads / s.kv_heads);
    std::vector<double> out(static_cast<size_t>(s.head_width));
    double sum = 0;
    for (int64_t p = s.window > 0 ? std::max<int64_t>(0, n - s.window) : 0; p < n; ++p) {
      double dot = 0;
      const Token& t = token(segment, slots[static_cast<size_t>(p)], g);
      for (int64_t d = 0; d < s.head_width; ++d)
        dot += static_cast<double>(q[d]) * t.key[static_cast<size_t>(d)];
      sum += std::exp(dot);
      for (int64_t d = 0; d < s.head_width; ++d)
        out[static_cast<size_t>(d)] += std::exp(dot) * t.value[static_cast<size_t>(d)];
    }
    for (double& v : out) v /= sum;
    return out;
  }

  Shape s;
  KvPlane plane;
  std::map<std::pair<int64_t, int64_t>, Token> tokens;  // what was stored, by slot and head
};

const std::vector<Shape> kShapes = {
    {9, 3, 64, 0, 16, false},  {9, 3, 64, 0, 16, true},    {4, 4, 80, 0, 24, false},
    {4, 1, 16, 37, 8, false},  {2, 1, 256, 300, 16, true}, {6, 2, 48, 250, 4, false},
    {8, 1, 128, 1, 16, false}, {5, 5, 32, 0, 32, false},   {6, 2, 16, 70, 48, true},
};

// Sequences over one prefix whose blocks they share: some end in it, some go on in blocks of their
// own, one holds a tree, one has nothing in common with them.
struct Scene {
  std::vector<std::vector<BlockId>> tables;
  std::vector<std::vector<int32_t>> rows;
  std::vector<int64_t> bases;
  std::vector<DraftTree> trees;

  explicit Scene(int32_t P) {
    int32_t shared = 56 / P, whole = 304 / P, fresh = whole;
    auto add = [&](int32_t common, int64_t base, int32_t n) {
      std::vector<BlockId> t;
      for (int32_t b = 0; b < common; ++b) t.push_back(b);
      int64_t need = (base + n + 20) / P + 1;
      while (static_cast<int64_t>(t.size()) < need) t.push_back(fresh++ % kBlocks);
      tables.push_back(t);
      bases.push_back(base);
      rows.emplace_back();
      for (int32_t i = 0; i < n; ++i)
        rows.back().push_back(static_cast<int32_t>(tables.size()) * 100 + i);
      trees.emplace_back();
    };
    add(shared, 70, 1);
    add(shared, 61, 5);
    add(shared, 250, 20);
    add(whole, 310, 3);
    add(whole, 304, 1);
    add(0, 33, 2);
    add(0, 0, 40);
    for (int32_t i = 0; i < 3; ++i) trees[1].add_one_hot(10 + i, DraftTree::kRoot);
    for (int32_t i = 0; i < 12; ++i) trees[1].add_one_hot(20 + i, i);
    for (int32_t i = 0; i < 9; ++i) trees[3].add_one_hot(40 + i, i - 1);
  }
  void add_to(Batch* batch, size_t i) const {
    batch->add(rows[i], bases[i], &trees[i], tables[i], Batch::Logits::kNone);
  }
};

TEST(Attention, MatchesTheDefinitionInDouble) {
  for (const CpuKernels* kernels : all_kernels())
    for (const Shape& shape : kShapes) {
      Rig rig(shape);
      Scene scene(shape.block_tokens);
      Batch batch;
      for (size_t i = 0; i < scene.tables.size(); ++i) scene.add_to(&batch, i);
      std::vector<float> got = rig.run(*kernels, batch, 2), q = rig.queries(batch);
      int64_t D = shape.head_width;
      for (int32_t r = 0; r < batch.n_rows(); ++r)
        for (int64_t h = 0; h < shape.heads; ++h) {
          int64_t at = (r * shape.heads + h) * D;
          std::vector<double> want = rig.truth(batch, r, h, &q[static_cast<size_t>(at)]);
          // Partial sums of a score stay below 5 sigma = 2.5 sqrt(D), so D additions round it by at
          // most this; the exp scales with it, and values stay below 5.
          double score = static_cast<double>(D) * 2.5 * std::sqrt(static_cast<double>(D)) * 0x1p-24;
          for (int64_t d = 0; d < D; ++d)
            ASSERT_NEAR(got[static_cast<size_t>(at + d)], want[static_cast<size_t>(d)], 5 * score)
                << kernels->name << " D " << D << " row " << r << " head " << h;
        }
    }
}

TEST(Attention, NeighboursSharedBlocksAndThreadsChangeNoBit) {
  for (const CpuKernels* kernels : all_kernels())
    for (const Shape& shape : kShapes) {
      Rig rig(shape);
      Scene scene(shape.block_tokens);
      Batch batch;
      for (size_t i = 0; i < scene.tables.size(); ++i) scene.add_to(&batch, i);
      std::vector<float> together = rig.run(*kernels, batch, 3);
      auto from = together.begin();
      for (size_t i = 0; i < scene.tables.size(); ++i) {
        Batch own;
        scene.add_to(&own, i);
        std::vector<float> alone = rig.run(*kernels, own, 1);
        ASSERT_TRUE(std::equal(alone.begin(), alone.end(), from))
            << kernels->name << " D " << shape.head_width << " sequence " << i;
        from += static_cast<std::ptrdiff_t>(alone.size());
      }
    }
}

// A prompt's rows meet many splits: they are folded wave by wave, or all at once.
TEST(Attention, WavesOfSplitsChangeNoBit) {
  for (const CpuKernels* kernels : all_kernels())
    for (int64_t window : {0, 290}) {
      Rig rig({3, 1, 32, window, 16, false});
      std::vector<BlockId> table(44);
      std::iota(table.begin(), table.end(), 3);
      std::vector<int32_t> tokens(700);
      std::iota(tokens.begin(), tokens.end(), 0);
      Batch whole;
      whole.add(tokens, 0, nullptr, table, Batch::Logits::kNone);
      std::vector<float> want = rig.run(*kernels, whole, 1, 700 * Attention::kSplit);
      ASSERT_EQ(rig.run(*kernels, whole, 2), want) << kernels->name << ": two splits a wave";
      for (int32_t first : {0, 1, 127, 128, 400, 699}) {
        Batch row;
        row.add(std::span(tokens).subspan(static_cast<size_t>(first), 1), first, nullptr, table,
                Batch::Logits::kNone);
        std::vector<float> alone = rig.run(*kernels, row, 1);
        ASSERT_TRUE(std::equal(alone.begin(), alone.end(), want.begin() + first * 3 * 32))
            << kernels->name << " row " << first;
      }
    }
}

TEST(Attention, AChainOfNodesIsReadLikeCommittedTokens) {
  Rig rig({4, 2, 64, 0, 16, false});
  std::vector<BlockId> table(10);
  std::iota(table.begin(), table.end(), 20);
  std::vector<int32_t> tokens = {7, 8, 9, 10, 11, 12};
  DraftTree chain;
  for (int32_t i = 1; i < 6; ++i) chain.add_one_hot(tokens[static_cast<size_t>(i)], i - 2);
  for (const CpuKernels* kernels : all_kernels())
    for (int64_t base : {60, 63, 64, 126, 140}) {
      Batch plain, tree;
      plain.add(tokens, base, nullptr, table, Batch::Logits::kNone);
      tree.add(std::span(tokens).first(1), base, &chain, table, Batch::Logits::kNone);
      EXPECT_EQ(rig.run(*kernels, tree, 1), rig.run(*kernels, plain, 2)) << kernels->name;
    }
}

TEST(Attention, WhatStandsInUnseenSlotsIsNeverRead) {
  for (int32_t P : {16, 8}) {
    Rig rig({3, 1, 32, 0, P, true});
    std::vector<BlockId> table = {3, 4, 5, 6, 7, 8};
    std::vector<int32_t> rows = {1, 2, 3};
    Batch batch;
    batch.add(rows, 18, nullptr, table, Batch::Logits::kNone);
    for (const CpuKernels* kernels : all_kernels()) {
      Rig dirty({3, 1, 32, 0, P, true});
      std::vector<float> nan(32, NAN);
      for (int64_t slot = 21; slot < 48; ++slot)
        dirty.plane.store(0, batch.segments[0], slot, 0, nan.data(), nan.data());
      EXPECT_EQ(dirty.run(*kernels, batch, 1), rig.run(*kernels, batch, 1)) << kernels->name;
    }
  }
}

// A row that is ill (NaN in its key and value) harms nobody who stands before it in the chunk.
TEST(Attention, RowsBeforeAnIllOneKeepTheirBits) {
  std::vector<BlockId> table = {3, 4, 5, 6, 7, 8};
  std::vector<int32_t> rows(40);
  std::iota(rows.begin(), rows.end(), 1);
  Batch batch;
  batch.add(rows, 10, nullptr, table, Batch::Logits::kNone);
  for (const CpuKernels* kernels : all_kernels()) {
    Rig rig({3, 1, 32, 0, 16, false}), ill({3, 1, 32, 0, 16, false});
    std::vector<float> nan(32, NAN);
    ill.plane.store(0, batch.segments[0], 10 + 17, 0, nan.data(), nan.data());
    std::vector<float> want = rig.run(*kernels, batch, 1), got = ill.run(*kernels, batch, 1);
    EXPECT_TRUE(std::equal(want.begin(), want.begin() + 17 * 3 * 32, got.begin())) << kernels->name;
    EXPECT_TRUE(std::isnan(got[17 * 3 * 32])) << kernels->name;
  }
}

}  // namespace
}  // namespace pf
