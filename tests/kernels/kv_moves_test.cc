// Truth: the definition on host arrays: blocks and slots copied one by one, in order (level 1).
#include "kernels/bits.h"
#include "kernels/budget.h"
#include "kernels/compact_kv.h"
#include "kernels/copy_blocks.h"
#include "kernels/device_array.h"

namespace pf::kernels {
namespace {

using Shape = KvPlane<f16>;

KvPlane<f16> on(const DeviceArray<f16>& memory, Shape shape) {
  shape.data = memory.data();
  return shape;
}
std::vector<f16> content(Shape shape) {
  return random_values<f16>(static_cast<size_t>(shape.size()), 1);
}
size_t index(const Shape& s, int64_t layer, int64_t which, int64_t g, int64_t place) {
  return static_cast<size_t>(
             (((layer * s.n_blocks + place / s.block_tokens) * 2 + which) * s.n_kv_heads + g) *
                 s.block_tokens +
             place % s.block_tokens) *
         static_cast<size_t>(s.head_width);
}
// Copies one token in every layer and head.
void copy_token(const Shape& s, std::vector<f16>& v, int64_t from, int64_t to) {
  for (int64_t l = 0; l < s.n_layers; ++l)
    for (int64_t w = 0; w < 2; ++w)
      for (int64_t g = 0; g < s.n_kv_heads; ++g)
        for (size_t d = 0; d < static_cast<size_t>(s.head_width); ++d)
          v[index(s, l, w, g, to) + d] = v[index(s, l, w, g, from) + d];
}

class KvMoves : public Scheduled {};

TEST_P(KvMoves, BlocksAreCopiedInAllLayers) {
  for (Shape s : {Shape{nullptr, 1, 4, 1, 16, 8}, Shape{nullptr, 3, 5, 3, 16, 64},
                  Shape{nullptr, 2, 6, 2, 32, 128}}) {
    std::vector<f16> host = content(s);
    DeviceArray<f16> memory(host);
    std::vector<int32_t> pairs = {0, 2, 0, 3, 1, static_cast<int32_t>(s.n_blocks - 1)};
    if (s.n_blocks == 4) pairs.resize(2);
    DeviceArray<int32_t> on_device(pairs);
    int64_t n = static_cast<int64_t>(pairs.size()) / 2;
    copy_blocks(on(memory, s), View<const int32_t, 2>{on_device.data(), {n, 2}}, nullptr);
    for (size_t i = 0; i < pairs.size(); i += 2)
      for (int64_t t = 0; t < s.block_tokens; ++t)
        copy_token(s, host, pairs[i] * s.block_tokens + t, pairs[i + 1] * s.block_tokens + t);
    EXPECT_EQ(bits_of(memory.host()), bits_of(host)) << s.n_blocks;
  }
}

TEST_P(KvMoves, NoPairsAndNoMovesDoNothing) {
  Shape s{nullptr, 1, 2, 1, 16, 64};
  std::vector<f16> host = content(s);
  DeviceArray<f16> memory(host);
  uint64_t before = ptxvm::n_launches();
  copy_blocks(on(memory, s), View<const int32_t, 2>{nullptr, {0, 2}}, nullptr);
  compact_kv(on(memory, s), View<const int32_t, 2>{nullptr, {0, 2}},
             View<const int32_t, 1>{nullptr, {1}}, nullptr);
  EXPECT_EQ(ptxvm::n_launches(), before);
  EXPECT_EQ(bits_of(memory.host()), bits_of(host));
}

// Path nodes 1, 2, 4, 5, 6, 9 to 0..5: places 1, 2 and 4, 5 are read and later written.
TEST_P(KvMoves, AnOverlappingPathGoesToTheFront) {
  for (Shape s : {Shape{nullptr, 1, 2, 1, 16, 8}, Shape{nullptr, 2, 4, 5, 16, 64},
                  Shape{nullptr, 2, 4, 2, 32, 128}}) {
    std::vector<f16> host = content(s);
    DeviceArray<f16> memory(host);
    const std::vector<int32_t> nodes = {1, 2, 4, 5, 6, 9};
    std::vector<int32_t> moves, first = {0};
    for (int32_t base : {3, 18}) {  // two sequences; the second has three moves
      for (size_t k = 0; k < (base == 3 ? nodes.size() : 3); ++k)
        moves.insert(moves.end(), {base + nodes[k], base + static_cast<int32_t>(k)});
      first.push_back(static_cast<int32_t>(moves.size()) / 2);
    }
    first.insert(first.begin() + 1, 0);  // and one in front of both has none
    DeviceArray<int32_t> dm(moves), df(first);
    compact_kv(on(memory, s), View<const int32_t, 2>{dm.data(), {first.back(), 2}},
               View<const int32_t, 1>{df.data(), {static_cast<int64_t>(first.size())}}, nullptr);
    for (size_t i = 0; i < moves.size(); i += 2) copy_token(s, host, moves[i], moves[i + 1]);
    EXPECT_EQ(bits_of(memory.host()), bits_of(host)) << s.head_width;
  }
}

TEST_P(KvMoves, Int8RowsTakeTheirScalesAlong) {
  for (Shape s : {Shape{nullptr, 2, 5, 3, 16, 64}, Shape{nullptr, 1, 4, 70, 8, 16}}) {
    std::vector<int8_t> rows(static_cast<size_t>(s.size()));
    std::vector<float> scales(static_cast<size_t>(s.n_scales()));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int8_t>(i * i % 251);
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i);
    DeviceArray<int8_t> on_device(rows);
    DeviceArray<float> scales_on_device(scales);
    KvPlane<f16> plane = s;
    plane.int8 = on_device.data(), plane.scales = scales_on_device.data();
    const int32_t P = static_cast<int32_t>(s.block_tokens), from = P - 2;  // across two blocks
    DeviceArray<int32_t> pairs(std::vector<int32_t>{2, 3}), first(std::vector<int32_t>{0, 2}),
        moves(std::vector<int32_t>{from + 1, from - 1, from + 3, from});
    copy_blocks(plane, View<const int32_t, 2>{pairs.data(), {1, 2}}, nullptr);
    compact_kv(plane, View<const int32_t, 2>{moves.data(), {2, 2}},
               View<const int32_t, 1>{first.data(), {2}}, nullptr);
    auto copy = [&](int64_t source, int64_t to) {
      for (int64_t l = 0; l < s.n_layers; ++l)
        for (int64_t w = 0; w < 2; ++w)
          for (int64_t g = 0; g < s.n_kv_heads; ++g) {
            const size_t a = index(s, l, w, g, source), b = index(s, l, w, g, to);
            const size_t D = static_cast<size_t>(s.head_width);
            for (size_t d = 0; d < D; ++d) rows[b + d] = rows[a + d];
            scales[b / D] = scales[a / D];
          }
    };
    for (int64_t t = 0; t < P; ++t) copy(2 * P + t, 3 * P + t);
    copy(from + 1, from - 1), copy(from + 3, from);
    EXPECT_EQ(on_device.host(), rows);
    EXPECT_EQ(scales_on_device.host(), scales);
  }
}

// Whole sectors at any head width of a model; nothing is shared. An int8 row of 128 is 4 sectors,
// and its scale one of which 4 bytes move: 5 in place of 4 1/8, but for copies of whole blocks.
TEST(KvMovesBudget, EverySectorOnce) {
  ptxvm::clear_measures();
  Shape s{nullptr, 2, 4, 3, 16, 128};
  DeviceArray<f16> memory(content(s));
  DeviceArray<int32_t> pairs(std::vector<int32_t>{0, 3}),
      moves(std::vector<int32_t>{4, 2, 7, 3, 9, 4, 10, 5, 11, 6}),
      first(std::vector<int32_t>{0, 5});
  copy_blocks(on(memory, s), View<const int32_t, 2>{pairs.data(), {1, 2}}, nullptr);
  compact_kv(on(memory, s), View<const int32_t, 2>{moves.data(), {5, 2}},
             View<const int32_t, 1>{first.data(), {2}}, nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  expect_within({0.5, 1, 1}, "copy_blocks_kernel");
  expect_within({0.5, 1, 1}, "compact_kv_kernel");
  KvPlane<f16> int8 = s;
  DeviceArray<int8_t> rows(std::vector<int8_t>(static_cast<size_t>(s.size()), 3));
  DeviceArray<float> scales(std::vector<float>(static_cast<size_t>(s.n_scales()), 1));
  int8.int8 = rows.data(), int8.scales = scales.data();
  copy_blocks(int8, View<const int32_t, 2>{pairs.data(), {1, 2}}, nullptr);
  compact_kv(int8, View<const int32_t, 2>{moves.data(), {5, 2}},
             View<const int32_t, 1>{first.data(), {2}}, nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  expect_within({0.95, 1, 1}, "copy_blocks_kernel");
  expect_within({0.95, 1, 5 / 4.125}, "compact_kv_kernel");
}

INSTANTIATE_TEST_SUITE_P(Schedules, KvMoves, testing::Values(0u, 1u, 2u, 3u));

}  // namespace
}  // namespace pf::kernels
