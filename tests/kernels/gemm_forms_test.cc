// Truth: the bits of the separate kernels behind a plain product (their truth: silu_mul_test.cc,
// gemm_fp16_test.cc, gemm_int4_test.cc), in every tiling.
#include <gtest/gtest.h>

#include "kernels/bits.h"
#include "kernels/budget.h"
#include "kernels/gemm_fp16.h"
#include "kernels/gemm_int4.h"
#include "kernels/rms_norm.h"
#include "kernels/silu_mul.h"
#include "kernels/turned_heads.h"

namespace pf::kernels {
namespace {

constexpr GemmTiling kTilings[] = {GemmTiling::kSplit8,  GemmTiling::kSplit16,
                                   GemmTiling::kSplit32, GemmTiling::kSplit64,
                                   GemmTiling::k64x64,   GemmTiling::k128x128};

// x [T, K] and weights [N, K] of either storage on the device.
template <class A>
struct Product {
  Product(int64_t n_rows, int64_t n_features, int64_t width, bool is_int4)
      : T(n_rows),
        N(n_features),
        K(width),
        int4(is_int4),
        shape{N, K, 32, true},
        x(random_values<A>(size_t(T * K), 1)),
        w(random_values<A>(size_t(N * K), 2, 0.1f)),
        packed(pack()) {}

  std::vector<std::byte> pack() const {
    std::vector<uint8_t> q;
    uint32_t random = 5;
    for (int64_t i = 0; i < N * K; ++i)
      q.push_back(uint8_t((random = random * 1664525u + 1013904223u) >> 28));
    auto d = random_values<f16>(size_t(N * K / 32), 4, 0.01f),
         m = random_values<f16>(size_t(N * K / 32), 6, 0.1f);
    std::vector<std::byte> out(size_t(packed_int4_bytes(shape)));
    pack_int4_for_mma(shape, 0, N, q.data(), d.data(), m.data(), out.data());
    return out;
  }

  // False where the weights have no such tiling.
  bool run(const GemmOutput<A>& y, GemmTiling tiling) const {
    const View<const A, 2> in{x.data(), {T, K}};
    if (int4 && tiling == GemmTiling::kSplit64) return false;
    if (int4)
      gemm_int4(y, in, {packed.data(), shape}, nullptr, tiling);
    else
      gemm_fp16(y, in, View<const A, 2>{w.data(), {N, K}}, nullptr, tiling);
    return true;
  }
  // The plain product.
  template <class Y>
  std::vector<Y> plain() const {
    DeviceArray<Y> y(size_t(T * N));
    run(GemmOutput<A>::rows(View<Y, 2>{y.data(), {T, N}}, {}), GemmTiling::kAuto);
    return y.host();
  }

  const int64_t T, N, K;
  const bool int4;
  const Int4Shape shape;
  DeviceArray<A> x, w;
  DeviceArray<std::byte> packed;
};

class GemmForms : public Scheduled {};
INSTANTIATE_TEST_SUITE_P(Schedules, GemmForms, testing::Values(0u, 1u));

TEST(UnpairedRow, TwoOfEachHalfInTurn) {
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < 16; ++r) rows.push_back(unpaired_row(r, 4));
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
}

template <class A>
void compare_silu(int64_t T, int64_t F, int64_t K, bool int4) {
  Product<A> p(T, 2 * F, K, int4);
  DeviceArray<A> gate_up(p.template plain<A>()), want(size_t(T * F));
  silu_mul<A>({want.data(), {T, F}}, View<const A, 2>{gate_up.data(), {T, 2 * F}}, nullptr);
  for (GemmTiling tiling : kTilings) {
    DeviceArray<A> y(size_t(T * F));
    if (p.run(GemmOutput<A>::silu({y.data(), {T, F}}), tiling)) {
      ASSERT_EQ(bits_of(y.host()), bits_of(want.host())) << "tiling " << int(tiling);
    }
  }
}

TEST_P(GemmForms, SiluHasTheBitsOfItsKernel) {
  for (bool int4 : {false, true}) {
    compare_silu<f16>(1, 96, 64, int4);
    compare_silu<bf16>(9, 20, 288, int4);  // units that end within a tile
    compare_silu<f16>(70, 4, 32, int4);    // a pair of pairs
    compare_silu<bf16>(131, 68, 96, int4);
  }
}

template <class A>
void compare_rope(int64_t T, int64_t H, int64_t G, int64_t D, bool has_bias, bool int4) {
  const int64_t N = (H + 2 * G) * D;
  Product<A> p(T, N, 96, int4);
  TurnedHeads<A> want(T, H, G, D, has_bias);
  DeviceArray<float> qkv(p.template plain<float>());
  rope_kv_write<A>(want.target(), View<const float, 2>{qkv.data(), {T, N}}, nullptr);
  for (GemmTiling tiling : kTilings) {
    TurnedHeads<A> got(T, H, G, D, has_bias);
    if (!p.run(GemmOutput<A>::rope(got.target()), tiling)) continue;
    ASSERT_EQ(bits_of(got.q.host()), bits_of(want.q.host())) << "tiling " << int(tiling);
    ASSERT_EQ(bits_of(got.kv.host()), bits_of(want.kv.host())) << "tiling " << int(tiling);
  }
}

TEST_P(GemmForms, TurnedHeadsHaveTheBitsOfTheirKernel) {
  for (bool int4 : {false, true}) {
    compare_rope<f16>(1, 2, 1, 64, false, int4);
    compare_rope<bf16>(9, 3, 1, 64, true, int4);
    compare_rope<f16>(70, 2, 1, 128, true, int4);
    compare_rope<bf16>(131, 1, 1, 128, false, int4);
  }
}

template <class A>
void compare_norm(int64_t T, int64_t E, bool int4) {
  Product<A> p(T, E, 96, int4);
  const auto before = random_values<float>(size_t(T * E), 11);
  DeviceArray<float> w(random_values<float>(size_t(E), 12));
  DeviceArray<float> sum(before), other(before);
  DeviceArray<A> want(size_t(T * E)), got(size_t(T * E));
  DeviceArray<uint32_t> counter(std::vector<uint32_t>{0});
  p.run(GemmOutput<A>::rows(View<float, 2>{sum.data(), {T, E}}, {.add = true}), GemmTiling::kAuto);
  rms_norm<A>({want.data(), {T, E}}, View<const float, 2>{sum.data(), {T, E}}, {w.data(), {E}},
              1e-5f, nullptr);
  auto to = GemmOutput<A>::rows(View<float, 2>{other.data(), {T, E}}, {.add = true});
  to.norm = {got.data(), w.data(), 1e-5f, counter.data()};
  p.run(to, GemmTiling::kAuto);
  ASSERT_EQ(bits_of(got.host()), bits_of(want.host()));
  ASSERT_EQ(other.host(), sum.host());
  ASSERT_EQ(counter.host(), std::vector<uint32_t>{0});
}

TEST_P(GemmForms, TheNormOfASumHasTheBitsOfItsKernel) {
  for (bool int4 : {false, true}) {
    compare_norm<f16>(1, 4, int4);  // one block, one pack
    compare_norm<bf16>(8, 64, int4);
    compare_norm<f16>(5, 1060, int4);  // past 1024, and no whole unit
    compare_norm<bf16>(3, 2304, int4);
  }
}

TEST(GemmFormsDeathTest, RefusesOtherShapes) {
  alignas(16) static f16 a{};
  auto run = [&](GemmOutput<f16> y, int64_t N) {
    gemm_fp16(y, View<const f16, 2>{&a, {1, 8}}, View<const f16, 2>{&a, {N, 8}}, nullptr);
  };
  EXPECT_DEATH(run(GemmOutput<f16>::silu({&a, {1, 8}}), 8), "not that of the product");
  EXPECT_DEATH(run(GemmOutput<f16>::silu({&a, {1, 3}}), 6), "N to be a multiple of 4");
  alignas(16) float y[72] = {};
  auto of_rows = [&](int64_t T, GemmTiling tiling) {
    auto to = GemmOutput<f16>::rows(View<float, 2>{y, {T, 8}}, {});
    to.norm.y = &a;
    gemm_fp16(to, View<const f16, 2>{&a, {T, 8}}, View<const f16, 2>{&a, {8, 8}}, nullptr, tiling);
  };
  EXPECT_DEATH(of_rows(9, GemmTiling::kAuto), "a norm needs up to 8 rows");
  EXPECT_DEATH(of_rows(8, GemmTiling::kSplit16), "a norm needs the smallest tiling");
  float scales = 0;
  RopeTarget<f16> int8{.T = 1, .scales = &scales, .H = 1, .G = 1, .P = 16, .D = 64};
  EXPECT_DEATH(run(GemmOutput<f16>::rope(int8), 192), "int8 keys and values");
}

// A pair of 16-bit numbers is 4 bytes, and the eight of a unit's row fill a sector.
TEST(GemmFormsBudget, NoSectorTwice) {
  for (bool int4 : {false, true})
    for (GemmTiling tiling : kTilings) {
      Product<bf16> p(64, 128, 512, int4);
      DeviceArray<bf16> y(64 * 64);
      ptxvm::clear_measures();
      if (!p.run(GemmOutput<bf16>::silu({y.data(), {64, 64}}), tiling)) continue;
      Product<bf16> qkv(64, 6 * 64, 512, int4);
      TurnedHeads<bf16> to(64, 4, 1, 64, true);
      qkv.run(GemmOutput<bf16>::rope(to.target()), tiling);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      expect_within({.reached = 0, .wavefronts = int4 ? 1.15 : 1}, "gemm_kernel");
    }
}

}  // namespace
}  // namespace pf::kernels
