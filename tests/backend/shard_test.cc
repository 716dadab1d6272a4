// Truth: the whole matrix by plain indexing: the parts of all ranks, put together, are it.
#include "backend/cuda/shard.h"

#include <gtest/gtest.h>

#include <set>

#include "backend/tiny_model.h"
#include "model/quantize.h"

namespace pf {
namespace {

std::vector<float> values(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.size()));
  dequantize_rows(t, 0, t.rows(), out.data());
  return out;
}

// Rows [row, ..) and columns [col, ..) of the whole, as the part has them.
void expect_part(const Tensor& part, const Tensor& whole, int64_t row, int64_t col) {
  const std::vector<float> got = values(part), want = values(whole);
  for (int64_t r = 0; r < part.rows(); ++r)
    for (int64_t c = 0; c < part.cols(); ++c)
      ASSERT_EQ(got[static_cast<size_t>(r * part.cols() + c)],
                want[static_cast<size_t>((row + r) * whole.cols() + col + c)])
          << part.name << " " << r << ", " << c;
}

TinyShape shape_of_test() {
  return {.width = 64, .ffn = 256, .heads = 8, .kv_heads = 2, .head_width = 32, .bias = true};
}

TEST(Shard, RanksTakeTheirHeadsAndFeaturesAndTheColumnsThatMeetThem) {
  const Model m = tiny_model(shape_of_test());
  const LayerWeights& w = m.layers[1];
  for (int32_t n : {1, 2, 4})
    for (int32_t rank = 0; rank < n; ++rank) {
      const Shard shard{rank, n};
      ModelStorage storage;
      const LayerWeights part = shard_layer(w, m.config, shard, &storage);
      const ModelConfig c = shard_config(m.config, shard);
      EXPECT_EQ(c.n_heads, 8 / n);
      EXPECT_EQ(c.n_kv_heads, n == 1 ? 2 : 1);
      const int64_t q = rank * 256 / n, F = rank * 256 / n;
      const int64_t kv = n == 4 ? rank / 2 * 32 : rank * 32;  // four ranks: two hold a KV head
      expect_part(part.q, w.q, q, 0);
      expect_part(part.k, w.k, kv, 0);
      expect_part(part.v, w.v, kv, 0);
      expect_part(part.q_bias, w.q_bias, 0, q);
      expect_part(part.k_bias, w.k_bias, 0, kv);
      expect_part(part.v_bias, w.v_bias, 0, kv);
      expect_part(part.o, w.o, 0, q);
      expect_part(part.gate, w.gate, F, 0);
      expect_part(part.up, w.up, F, 0);
      expect_part(part.down, w.down, 0, F);
      EXPECT_EQ(part.q.rows(), c.n_heads * 32);
      EXPECT_EQ(part.k_bias.size(), c.n_kv_heads * 32);
      EXPECT_EQ(part.o.cols(), c.n_heads * 32);
      EXPECT_EQ(part.o.rows(), 64);
      EXPECT_EQ(part.down.cols(), 256 / n);
      EXPECT_EQ(part.gate.rows(), c.ffn_width);
      EXPECT_EQ(values(part.ffn_norm), values(w.ffn_norm));
    }
}

TEST(Shard, StretchesOfTheVocabularyAreEquallyLongAndCoverIt) {
  const Model m = tiny_model(shape_of_test());  // 101 tokens
  for (int32_t n : {2, 3, 4, 8}) {
    std::set<int64_t> covered;
    for (int32_t rank = 0; rank < n; ++rank) {
      const Tensor part = shard_head(m.head, {rank, n});
      const int64_t first = first_head_row(101, {rank, n});
      EXPECT_EQ(part.rows(), (101 + n - 1) / n);
      expect_part(part, m.head, first, 0);
      for (int64_t r = 0; r < part.rows(); ++r) covered.insert(first + r);
    }
    EXPECT_EQ(covered.size(), 101u) << n << " ranks";
    EXPECT_EQ(*covered.rbegin(), 100);
  }
}

// A quantised row is cut between its blocks, and its values are those of the whole row.
TEST(Shard, QuantisedColumnsAreWholeBlocks) {
  const Model m = tiny_model(shape_of_test());
  Tensor down = m.layers[0].down;  // [64, 256]
  std::vector<float> rows = values(down);
  const auto bytes = static_cast<size_t>(row_bytes(TensorType::kQ4_1, 256));
  std::vector<std::byte> packed(64 * bytes);
  for (size_t r = 0; r < 64; ++r)
    ASSERT_TRUE(
        quantize_row(TensorType::kQ4_1, rows.data() + r * 256, 256, packed.data() + r * bytes)
            .ok());
  down.type = TensorType::kQ4_1;
  down.data = packed;
  LayerWeights w = m.layers[0];
  w.down = down;
  ModelStorage storage;
  for (int32_t rank = 0; rank < 8; ++rank)
    expect_part(shard_layer(w, m.config, {rank, 8}, &storage).down, down, 0, rank * 32);
}

TEST(Shard, RefusesWhatDoesNotDivide) {
  const Model m = tiny_model(shape_of_test());
  EXPECT_TRUE(check_shards(m, 8, true).ok());  // 8 heads, 4 ranks to a KV head, 32 features each
  auto message = [&](const TinyShape& shape, int32_t n, bool int4) {
    return check_shards(tiny_model(shape), n, int4).message();
  };
  const std::string possible = "; possible for this model: ";
  TinyShape s = shape_of_test();
  EXPECT_EQ(
      message(s, 3, false),
      "--tensor-parallel-size 3: 8 attention heads do not divide by it" + possible + "1, 2, 4, 8");
  s.heads = 6, s.kv_heads = 3;
  EXPECT_EQ(
      message(s, 2, false),
      "--tensor-parallel-size 2: 3 KV heads neither divide by it nor it by them" + possible + "1");
  s = shape_of_test();
  s.ffn = 96;
  EXPECT_EQ(message(s, 8, false),
            "--tensor-parallel-size 8: the feed-forward width 96 does not divide by 8 x it" +
                possible + "1, 2, 4");
  EXPECT_EQ(message(s, 2, true),
            "--tensor-parallel-size 2: down: rows of 96 weights do not divide into whole groups of "
            "32" +
                possible + "1");
  s = shape_of_test();
  s.vocabulary = 7;
  EXPECT_EQ(message(s, 8, false),
            "--tensor-parallel-size 8: the vocabulary is too small" + possible + "1, 2, 4");
}

}  // namespace
}  // namespace pf
