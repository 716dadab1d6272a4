// Truth: the product of kernels/gemm_fp16.h as a float64 loop, under several schedules; and the
// bits of a row computed alone.
#include "kernels/gemm_fp16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"
#include "kernels/turned_heads.h"

namespace pf {
namespace {

using kernels::GemmTiling;

constexpr GemmTiling kTilings[] = {GemmTiling::kSplit8,  GemmTiling::kSplit16,
                                   GemmTiling::kSplit32, GemmTiling::kSplit64,
                                   GemmTiling::k64x64,   GemmTiling::k128x128};

struct Shape {
  size_t T, K, N;
};

// x, w and what stands in y before, rounded to their types.
template <class A, class Y>
struct Problem {
  Shape shape;
  std::vector<A> x, w;
  std::vector<Y> y;
  std::vector<float> bias;

  explicit Problem(Shape s, uint32_t seed = 1)
      : shape(s),
        x(round_all<A>(normal_values(s.T * s.K, seed))),
        w(round_all<A>(normal_values(s.N * s.K, seed + 1, 0.1f))),
        y(round_all<Y>(normal_values(s.T * s.N, seed + 2))),
        bias(normal_values(s.N, seed + 3)) {}

  // Rows [first, first + n) on the device.
  std::vector<Y> run(GemmTiling tiling, size_t first, size_t n, bool has_bias = false,
                     bool add = false) const {
    const auto N = static_cast<int64_t>(shape.N), K = static_cast<int64_t>(shape.K),
               T = static_cast<int64_t>(n);
    auto row = [&](const auto& all, size_t width) {
      auto at = all.begin() + static_cast<std::ptrdiff_t>(first * width);
      return std::vector(at, at + static_cast<std::ptrdiff_t>(n * width));
    };
    DeviceArray<A> dx(row(x, shape.K)), dw(w);
    DeviceArray<Y> dy(row(y, shape.N));
    DeviceArray<float> db(bias);
    kernels::gemm_fp16<A, Y>({dy.data(), {T, N}}, View<const A, 2>{dx.data(), {T, K}},
                             {dw.data(), {N, K}}, {has_bias ? db.data() : nullptr, add}, nullptr,
                             tiling);
    return dy.host();
  }

  // A sum of K exact products takes 7 additions within 8 products, K / 8 of these and 4 slices;
  // mma truncates, so each costs up to 2^-23 of the sum of magnitudes. Bias and y add one rounding
  // each, then one to Y.
  void compare(GemmTiling tiling, bool has_bias = false, bool add = false) const {
    std::vector<Y> got = run(tiling, 0, shape.T, has_bias, add);
    for (size_t i = 0; i < got.size(); ++i) {
      size_t t = i / shape.N, n = i % shape.N;
      double want = (has_bias ? double(bias[n]) : 0) + (add ? double(to_float(y[i])) : 0);
      double size = std::fabs(want);
      for (size_t k = 0; k < shape.K; ++k) {
        double product = double(to_float(x[t * shape.K + k])) * to_float(w[n * shape.K + k]);
        want += product;
        size += std::fabs(product);
      }
      double bound =
          size * double(shape.K / 8 + 13) * 0x1p-23 + std::fabs(want) * kHalfUlp<Y> + kTiny<Y>;
      expect_close(got[i], want, bound, "y", i);
      if (testing::Test::HasFailure()) return;
    }
  }
};

class GemmFp16 : public Scheduled {};

TEST_P(GemmFp16, IsTheProductInEveryTiling) {
  // One chunk; one past a unit; K and N of no tile, rows past every split tile; more steps of a
  // slice than stages; features past every tile.
  for (Shape s : {Shape{1, 8, 1}, Shape{9, 72, 33}, Shape{65, 328, 68}, Shape{9, 1352, 33},
                  Shape{9, 72, 164}}) {
    for (GemmTiling tiling : kTilings) {
      Problem<f16, f16>(s).compare(tiling);
      Problem<bf16, float>(s).compare(tiling);
    }
  }
}

TEST_P(GemmFp16, ShapesOfTheRealModel) {
  Problem<bf16, bf16>({3, 576, 960}).compare(GemmTiling::kAuto);  // q, k and v: 576 + 192 + 192
  Problem<f16, float>({2, 1536, 576}).compare(GemmTiling::kAuto, false, true);  // down
}

TEST_P(GemmFp16, BiasAndAdditionIntoBothTypes) {
  for (size_t N : {8u, 34u, 35u}) {  // in vectors, one by one
    for (GemmTiling tiling : kTilings) {
      for (int flags = 0; flags < 4; ++flags) {
        const bool has_bias = flags & 1, add = flags & 2;
        Problem<f16, f16>({5, 64, N}).compare(tiling, has_bias, add);
        Problem<f16, float>({5, 64, N}).compare(tiling, has_bias, add);
        Problem<bf16, bf16>({5, 64, N}).compare(tiling, has_bias, add);
        Problem<bf16, float>({5, 64, N}).compare(tiling, has_bias, add);
      }
    }
  }
}

// A step that ends behind K: the first one, one of the first stages, a later one.
template <class A>
void expect_bad_values_stay(float bad) {
  for (size_t K : {40u, 72u, 328u}) {
    Problem<A, float> p({9, K, 33});
    p.x[3 * K + 1] = round_to<A>(bad);  // where row 2 would read on
    p.x[3 * K + K - 2] = round_to<A>(bad);
    p.w[7 * K + 1] = round_to<A>(bad);
    for (GemmTiling tiling : kTilings) p.compare(tiling);
  }
}

TEST_P(GemmFp16, NanAndInfinityReachTheirRowOrFeatureOnly) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    expect_bad_values_stay<f16>(bad);
    expect_bad_values_stay<bf16>(bad);
  }
}

TEST_P(GemmFp16, NoRows) {
  EXPECT_TRUE((Problem<f16, f16>({0, 64, 8}).run(GemmTiling::kAuto, 0, 0).empty()));
}

INSTANTIATE_TEST_SUITE_P(Schedules, GemmFp16, testing::Values(0u, 1u));

template <class T>
bool same_bits(const std::vector<T>& all, size_t first, const std::vector<T>& part) {
  return std::memcmp(all.data() + first, part.data(), part.size() * sizeof(T)) == 0;
}

// 1 step; slices of one step and an empty one; of 1, 2, 1 and 2 steps, the last one partial.
template <class A>
void expect_rows_alone_equal_rows_together() {
  for (size_t K : {40u, 192u, 328u}) {
    const size_t T = 70, N = 40;
    Problem<A, float> p({T, K, N});
    std::vector<float> alone;
    for (size_t t = 0; t < T; ++t) {
      std::vector<float> row = p.run(GemmTiling::kAuto, t, 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (size_t n = 1; n <= T; ++n)
      ASSERT_TRUE(same_bits(alone, (T - n) * N, p.run(GemmTiling::kAuto, T - n, n)))
          << n << " rows, K " << K;
    for (GemmTiling tiling : kTilings)
      ASSERT_TRUE(same_bits(alone, 0, p.run(tiling, 0, T))) << "tiling " << int(tiling);
  }
}
TEST(GemmFp16Rows, EveryRowCountAndTilingGivesTheSameBitsInF16) {
  expect_rows_alone_equal_rows_together<f16>();
}
TEST(GemmFp16Rows, EveryRowCountAndTilingGivesTheSameBitsInBf16) {
  expect_rows_alone_equal_rows_together<bf16>();
}

// That the order matters at all to the machine: another order of k gives other bits.
TEST(GemmFp16Rows, AnotherOrderOfKGivesOtherBits) {
  Problem<f16, float> p({4, 328, 40}), q = p;
  for (size_t row = 0; row < 40; ++row)
    std::reverse(q.w.begin() + static_cast<std::ptrdiff_t>(row * 328),
                 q.w.begin() + static_cast<std::ptrdiff_t>(row * 328 + 328));
  for (size_t row = 0; row < 4; ++row)
    std::reverse(q.x.begin() + static_cast<std::ptrdiff_t>(row * 328),
                 q.x.begin() + static_cast<std::ptrdiff_t>(row * 328 + 328));
  EXPECT_FALSE(same_bits(p.run(GemmTiling::kAuto, 0, 4), 0, q.run(GemmTiling::kAuto, 0, 4)));
}

// The other ways out (their truth: gemm_forms_test.cc).
template <class A>
void forms(GemmTiling tiling) {
  if (tiling == GemmTiling::kSplit8) {
    Problem<A, float> sum({5, 2304, 1064});
    DeviceArray<A> x(sum.x), w(sum.w), normed(5 * 1064);
    DeviceArray<float> y(sum.y), weights(sum.bias);
    DeviceArray<uint32_t> counter(std::vector<uint32_t>{0});
    for (bool add : {false, true}) {
      auto to = kernels::GemmOutput<A>::rows(View<float, 2>{y.data(), {5, 1064}},
                                             {add ? nullptr : weights.data(), add});
      to.norm = {normed.data(), weights.data(), 1e-5f, counter.data()};
      kernels::gemm_fp16(to, View<const A, 2>{x.data(), {5, 2304}},
                         View<const A, 2>{w.data(), {1064, 2304}}, nullptr, tiling);
    }
  }
  Problem<A, A> p({64, 64, 192});
  DeviceArray<A> x(p.x), w(p.w), y(64 * 96);
  const View<const A, 2> in{x.data(), {64, 64}}, rows{w.data(), {192, 64}};
  kernels::gemm_fp16(kernels::GemmOutput<A>::silu({y.data(), {64, 96}}), in, rows, nullptr, tiling);
  for (bool has_bias : {false, true}) {
    TurnedHeads<A> heads(64, 1, 1, 64, has_bias);
    kernels::gemm_fp16(kernels::GemmOutput<A>::rope(heads.target()), in, rows, nullptr, tiling);
  }
}

TEST(GemmFp16Budget, NoBankConflictNoSectorTwice) {
  for (GemmTiling tiling : kTilings) {
    ptxvm::clear_measures();
    auto run = [&](size_t N, int flags) {
      Problem<f16, f16>({64, 1088, N}).run(tiling, 0, 64, flags & 1, flags & 2);
      Problem<bf16, float>({64, 1088, N}).run(tiling, 0, 64, flags & 1, flags & 2);
    };
    run(128, 0);
    expect_within({.reached = 0}, "gemm_kernel");
    // Every way out of the epilogue. Features stored one by one touch a sector up to 16 times,
    // which is little beside the weights.
    for (int flags = 0; flags < 4; ++flags) {
      run(128, flags);
      run(33, flags);
      Problem<f16, float>({64, 40, 36}).run(tiling, 0, 64, flags & 1, flags & 2);
      Problem<bf16, bf16>({64, 40, 36}).run(tiling, 0, 64, flags & 1, flags & 2);
      Problem<f16, float>({64, 40, 33}).run(tiling, 0, 64, flags & 1, flags & 2);
      Problem<bf16, bf16>({64, 40, 33}).run(tiling, 0, 64, flags & 1, flags & 2);
    }
    forms<f16>(tiling);
    forms<bf16>(tiling);
    // At 33 features one lane in eight of the second unit goes on to store and folds its next row
    // apart from the others: bytes of its own, but few of a wavefront.
    expect_within({.wavefronts = 1.005, .sectors = 1.15}, "gemm_kernel");
  }
}

template <class A>
void expect_each_weight_once(GemmTiling tiling, size_t T) {
  const size_t K = 512, N = 128;
  Problem<A, A> p({T, K, N});
  ptxvm::clear_measures();
  p.run(tiling, 0, T);
  // w, y and, per block of features, x.
  const size_t blocks = N / static_cast<size_t>(kernels::gemm_block(tiling).features);
  EXPECT_EQ(ptxvm::kernel_measures().at(0).sectors * 32, 2 * (N * K + blocks * T * K + T * N));
}
TEST(GemmFp16Budget, WeightsAreReadOncePerRowTile) {
  for (GemmTiling tiling : kTilings) {
    const auto T = static_cast<size_t>(kernels::gemm_block(tiling).rows);
    expect_each_weight_once<f16>(tiling, T);
    expect_each_weight_once<bf16>(tiling, T);
  }
}

TEST(GemmFp16DeathTest, RefusesOtherShapes) {
  alignas(16) static f16 a{};
  auto run = [&](int64_t y_T, int64_t y_N, int64_t K, int64_t w_K) {
    kernels::gemm_fp16<f16, f16>({&a, {y_T, y_N}}, View<const f16, 2>{&a, {1, K}}, {&a, {8, w_K}},
                                 {}, nullptr);
  };
  EXPECT_DEATH(run(1, 8, 12, 12), "K must be a multiple of 8");
  EXPECT_DEATH(run(1, 8, 16, 24), "differ in K");
  EXPECT_DEATH(run(2, 8, 16, 16), "not that of the product");
  EXPECT_DEATH(run(1, 9, 16, 16), "not that of the product");
  EXPECT_DEATH((kernels::gemm_fp16<f16, f16>({&a, {1, 8}}, View<const f16, 2>{&a + 1, {1, 16}},
                                             {&a, {8, 16}}, {}, nullptr)),
               "not aligned");
}

}  // namespace
}  // namespace pf
