// Truth: softmax attention as a float64 loop over the positions that a row sees; and the bits of a
// row alone, which no neighbour and no shared block may change.
#include "backend/cpu/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

namespace pf {
namespace {

struct Shape {
  int64_t heads, kv_heads, head_width, window;
  int32_t block_tokens;
  KvType type;
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

// A row as the plane holds it.
std::vector<float> rounded(const std::vector<float>& x, KvType type) {
  if (type == KvType::kF32) return x;
  std::vector<float> y;
  float most = 0;
  for (float v : x) most = std::max(most, std::fabs(v));
  for (float v : x)
    y.push_back(type == KvType::kBf16 ? to_float(to_bf16(v))
                                      : std::nearbyint(v * (127 / most)) * (most / 127));
  return y;
}

// A plane of random keys and values (rounded to its type), and attention over it.
struct Rig {
  explicit Rig(const Shape& shape)
      : s(shape), plane(1, kBlocks, s.kv_heads, s.block_tokens, s.head_width, s.type) {
    std::mt19937 rng(7);
    std::normal_distribution<float> normal(0, 1);
    std::vector<BlockId> all(kBlocks);
    std::iota(all.begin(), all.end(), 0);
    for (BlockId b = 0; b < kBlocks; ++b)
      for (int64_t p = 0; p < s.block_tokens; ++p)
        for (int64_t g = 0; g < s.kv_heads; ++g) {
          Token token;
          for (std::vector<float>* v : {&token.key, &token.value})
            for (int64_t d = 0; d < s.head_width; ++d) v->push_back(normal(rng));
          int64_t slot = b * s.block_tokens + p;
          plane.store(0, Segment{0, 1, 1, 0, all}, slot, g, token.key.data(), token.value.data());
          tokens[{slot, g}] = {rounded(token.key, s.type), rounded(token.value, s.type)};
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
    {9, 3, 64, 0, 16, KvType::kBf16},    {9, 3, 64, 0, 16, KvType::kF32},
    {9, 3, 64, 0, 16, KvType::kInt8},    {4, 4, 80, 0, 24, KvType::kBf16},
    {4, 4, 80, 0, 24, KvType::kInt8},    {4, 1, 16, 37, 8, KvType::kBf16},
    {4, 1, 16, 37, 8, KvType::kInt8},    {2, 1, 256, 300, 16, KvType::kF32},
    {2, 1, 256, 300, 16, KvType::kInt8}, {6, 2, 48, 250, 4, KvType::kBf16},
    {8, 1, 128, 1, 16, KvType::kBf16},   {5, 5, 32, 0, 32, KvType::kBf16},
    {6, 2, 16, 70, 48, KvType::kF32},    {6, 2, 16, 70, 48, KvType::kInt8},
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
// By hand, in keys per layer and head: blocks of 16, splits of 128.
TEST(Attention, ABlockThatSeveralRowsSeeIsReadOnce) {
  Rig rig({4, 2, 16, 0, 16, KvType::kBf16});
  auto keys_read = [&](const Batch& batch) {
    Attention attention(4, 2, 16, 0, batch.n_rows(), kContext, 1);
    attention.plan(batch, rig.plane);
    return attention.n_keys_read(batch);
  };
  const std::vector<int32_t> token = {3};
  std::vector<BlockId> table(20);
  std::iota(table.begin(), table.end(), 0);
  std::vector<std::vector<BlockId>> mixed(4, table), own(4, table);  // a batch borrows them
  Batch shared, apart, chain;
  for (BlockId s = 0; s < 4; ++s) {
    const auto i = static_cast<size_t>(s);
    mixed[i][16] = 30 + s;  // the first 256 tokens are everybody's
    shared.add(token, 263, nullptr, mixed[i], Batch::Logits::kLast);
    std::iota(own[i].begin(), own[i].end(), 20 * s);
    apart.add(token, 263, nullptr, own[i], Batch::Logits::kLast);
  }
  EXPECT_EQ(keys_read(apart), 4 * 264);
  EXPECT_EQ(keys_read(shared), 256 + 4 * 8);
  // Rows of one text at positions 260 to 263 read all of it once.
  chain.add(std::vector<int32_t>{1, 2, 3, 4}, 260, nullptr, table, Batch::Logits::kLast);
  EXPECT_EQ(keys_read(chain), 264);
}

TEST(Attention, WavesOfSplitsChangeNoBit) {
  for (const CpuKernels* kernels : all_kernels())
    for (int64_t window : {0, 290}) {
      Rig rig({3, 1, 32, window, 16, window > 0 ? KvType::kInt8 : KvType::kBf16});
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

class AttentionOf : public testing::TestWithParam<KvType> {};

TEST_P(AttentionOf, AChainOfNodesIsReadLikeCommittedTokens) {
  Rig rig({4, 2, 64, 0, 16, GetParam()});
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

TEST_P(AttentionOf, WhatStandsInUnseenSlotsIsNeverRead) {
  for (int32_t P : {16, 8}) {
    Rig rig({3, 1, 32, 0, P, GetParam()});
    std::vector<BlockId> table = {3, 4, 5, 6, 7, 8};
    std::vector<int32_t> rows = {1, 2, 3};
    Batch batch;
    batch.add(rows, 18, nullptr, table, Batch::Logits::kNone);
    for (const CpuKernels* kernels : all_kernels()) {
      Rig dirty({3, 1, 32, 0, P, GetParam()});
      std::vector<float> nan(32, NAN);
      for (int64_t slot = 21; slot < 48; ++slot)
        dirty.plane.store(0, batch.segments[0], slot, 0, nan.data(), nan.data());
      EXPECT_EQ(dirty.run(*kernels, batch, 1), rig.run(*kernels, batch, 1)) << kernels->name;
    }
  }
}

// A row that is ill (NaN in its key and value) harms nobody who stands before it in the chunk.
TEST_P(AttentionOf, RowsBeforeAnIllOneKeepTheirBits) {
  std::vector<BlockId> table = {3, 4, 5, 6, 7, 8};
  std::vector<int32_t> rows(40);
  std::iota(rows.begin(), rows.end(), 1);
  Batch batch;
  batch.add(rows, 10, nullptr, table, Batch::Logits::kNone);
  for (const CpuKernels* kernels : all_kernels()) {
    Rig rig({3, 1, 32, 0, 16, GetParam()}), ill({3, 1, 32, 0, 16, GetParam()});
    std::vector<float> nan(32, NAN);
    ill.plane.store(0, batch.segments[0], 10 + 17, 0, nan.data(), nan.data());
    std::vector<float> want = rig.run(*kernels, batch, 1), got = ill.run(*kernels, batch, 1);
    EXPECT_TRUE(std::equal(want.begin(), want.begin() + 17 * 3 * 32, got.begin())) << kernels->name;
    EXPECT_TRUE(std::isnan(got[17 * 3 * 32])) << kernels->name;
  }
}

std::string name_of(const testing::TestParamInfo<KvType>& info) {
  const char* names[] = {"F32", "Bf16", "Int8"};
  return names[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Kv, AttentionOf,
                         testing::Values(KvType::kF32, KvType::kBf16, KvType::kInt8), name_of);

// A key is off by at most half its scale s in each of D places, so a score moves by at most
// delta = sum |q| s / 2, two weights against each other by e^(2 delta), and the result by
// max |v| (e^(2 delta) - 1), and by half the largest scale of the values. Both halves as kv_plane.h
// has them, with 2^-15 for the roundings of float on the way; those of the sums are the tolerance
// of the definition above.
TEST(Attention, Int8StaysWithinWhatItsScalesAllow) {
  Shape shape{6, 2, 64, 0, 16, KvType::kF32}, small = shape;
  small.type = KvType::kInt8;
  Rig exact(shape), rig(small);
  Scene scene(shape.block_tokens);
  Batch batch;
  for (size_t i = 0; i < scene.tables.size(); ++i) scene.add_to(&batch, i);
  const int64_t D = shape.head_width;
  double key_scale = 0, value_scale = 0, value = 0;
  for (const auto& [place, token] : exact.tokens) {
    double key_most = 0, value_most = 0;
    for (float x : token.key) key_most = std::max(key_most, std::fabs(static_cast<double>(x)));
    for (float x : token.value)
      value_most = std::max(value_most, std::fabs(static_cast<double>(x)));
    key_scale = std::max(key_scale, key_most / 127);
    value_scale = std::max(value_scale, value_most / 127);
    value = std::max(value, value_most);
  }
  const double half = 0.5 + 0x1p-15;
  const double sums =
      5 * static_cast<double>(D) * 2.5 * std::sqrt(static_cast<double>(D)) * 0x1p-24;
  for (const CpuKernels* kernels : all_kernels()) {
    std::vector<float> want = exact.run(*kernels, batch, 1), got = rig.run(*kernels, batch, 1),
                       q = rig.queries(batch);
    double largest = 0;
    for (size_t row = 0; row < q.size(); row += static_cast<size_t>(D)) {
      double sum = 0;
      for (size_t d = 0; d < static_cast<size_t>(D); ++d)
        sum += std::fabs(static_cast<double>(q[row + d]));
      double delta = sum * key_scale * half;
      double bound = value * std::expm1(2 * delta) + value_scale * half + 2 * sums;
      for (size_t d = 0; d < static_cast<size_t>(D); ++d) {
        double error =
            std::fabs(static_cast<double>(got[row + d]) - static_cast<double>(want[row + d]));
        ASSERT_LE(error, bound) << kernels->name;
        largest = std::max(largest, error);
      }
    }
    EXPECT_GT(largest, 0) << "int8 keys and values are those of float32";
  }
}

TEST(Attention, Int8RowsAreOffByHalfAScaleAtMost) {
  const int64_t D = 48;
  KvPlane plane(1, 1, 1, 16, D, KvType::kInt8);
  std::vector<BlockId> table = {0};
  Segment s{0, 1, 1, 0, table};
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 1);
  std::vector<std::byte> keys(static_cast<size_t>(plane.group_bytes())), values = keys;
  for (float size : {1.0f, 1e-30f, 1e30f, 0.0f, 1e-38f}) {
    std::vector<float> row(static_cast<size_t>(D));
    for (float& x : row) x = size * normal(rng);
    double most = 0;
    for (float x : row) most = std::max(most, std::fabs(static_cast<double>(x)));
    for (int64_t slot = 0; slot < 16; ++slot) {
      plane.store(0, s, slot, 0, row.data(), row.data());
      plane.gather(0, s, slot, 0, slot, keys.data(), values.data());
    }
    const auto* k = reinterpret_cast<const int8_t*>(keys.data());
    const auto* v = reinterpret_cast<const int8_t*>(values.data());
    for (int64_t slot = 0; slot < 16; ++slot) {
      float key_scale, value_scale;
      std::memcpy(&key_scale, k + 16 * D + 4 * slot, 4);
      std::memcpy(&value_scale, v + 16 * D + 4 * slot, 4);
      // Rows below 2^-100 become zero.
      double bound = std::max(most / 127 * (0.5 + 0x1p-15), most < 0x1p-100 ? most : 0.0);
      for (int64_t d = 0; d < D; ++d) {
        double x = static_cast<double>(row[static_cast<size_t>(d)]);
        EXPECT_LE(std::fabs(k[(d / 4 * 16 + slot) * 4 + d % 4] * double{key_scale} - x), bound);
        EXPECT_LE(std::fabs(v[slot * D + d] * double{value_scale} - x), bound);
      }
    }
  }
}

}  // namespace
}  // namespace pf
