// Truth: the formula of kernels/gemm_int4.h as a float64 loop, under several schedules; and the
// bits of a row computed alone.
#include "kernels/gemm_int4.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"
#include "kernels/turned_heads.h"

namespace pf {
namespace {

using kernels::GemmTiling;
using kernels::Int4Shape;

constexpr GemmTiling kTilings[] = {GemmTiling::kSplit8, GemmTiling::kSplit16, GemmTiling::kSplit32,
                                   GemmTiling::k64x64, GemmTiling::k128x128};

template <class A, class Y>
struct Problem {
  size_t T, K, N;
  Int4Shape shape;
  std::vector<A> x;
  std::vector<uint8_t> q;
  std::vector<f16> d, m;
  std::vector<Y> y;
  std::vector<float> bias;
  std::vector<std::byte> packed;

  Problem(size_t n_rows, Int4Shape s)
      : T(n_rows),
        K(static_cast<size_t>(s.K)),
        N(static_cast<size_t>(s.N)),
        shape(s),
        x(round_all<A>(normal_values(T * K, 1))),
        y(round_all<Y>(normal_values(T * N, 2))),
        bias(normal_values(N, 3)) {
    uint32_t random = 5;
    for (size_t i = 0; i < N * K; ++i)
      q.push_back(static_cast<uint8_t>((random = random * 1664525u + 1013904223u) >> 28));
    const size_t groups = N * K / static_cast<size_t>(s.group);
    d = round_all<f16>(normal_values(groups, 4, 0.01f));
    if (s.has_min) m = round_all<f16>(normal_values(groups, 6, 0.1f));
    packed.resize(static_cast<size_t>(kernels::packed_int4_bytes(s)));
    kernels::pack_int4_for_mma(s, 0, s.N, q.data(), d.data(), s.has_min ? m.data() : nullptr,
                               packed.data());
  }

  // Rows [first, first + n) on the device.
  std::vector<Y> run(GemmTiling tiling, size_t first, size_t n, bool has_bias = false,
                     bool add = false) const {
    const auto rows = static_cast<int64_t>(n);
    auto part = [&](const auto& all, size_t width) {
      auto at = all.begin() + static_cast<std::ptrdiff_t>(first * width);
      return std::vector(at, at + static_cast<std::ptrdiff_t>(n * width));
    };
    DeviceArray<A> dx(part(x, K));
    DeviceArray<Y> dy(part(y, N));
    DeviceArray<std::byte> dw(packed);
    DeviceArray<float> db(bias);
    kernels::gemm_int4<A, Y>({dy.data(), {rows, shape.N}},
                             View<const A, 2>{dx.data(), {rows, shape.K}}, {dw.data(), shape},
                             {has_bias ? db.data() : nullptr, add}, nullptr, tiling);
    return dy.host();
  }

  // Per 32 k: 7 additions within 8 products and 4 of these, then one or two fma; K / 32 of them in
  // a row, 8 slices. mma truncates, so each costs up to 2^-23 of the sum of magnitudes. Bias and y
  // add one rounding each, then one to Y.
  void compare(GemmTiling tiling, bool has_bias = false, bool add = false) const {
    std::vector<Y> got = run(tiling, 0, T, has_bias, add);
    const auto G = static_cast<size_t>(shape.group);
    for (size_t i = 0; i < got.size() && !testing::Test::HasFailure(); ++i) {
      size_t t = i / N, n = i % N;
      double want = (has_bias ? double(bias[n]) : 0) + (add ? double(to_float(y[i])) : 0);
      double size = std::fabs(want);
      for (size_t k = 0; k < K; ++k) {
        double v = to_float(x[t * K + k]), scale = to_float(d[(n * K + k) / G]);
        double whole = scale * v * (q[n * K + k] - (shape.has_min ? 0 : 8));
        double rest = shape.has_min ? to_float(m[(n * K + k) / G]) * v : 0;
        want += whole + rest;
        size += std::fabs(whole) + std::fabs(rest);
      }
      double bound =
          size * double(K / 16 + 21) * 0x1p-23 + std::fabs(want) * kHalfUlp<Y> + kTiny<Y>;
      expect_close(got[i], want, bound, "y", i);
    }
  }
};

// Both storage forms in both group widths, for one K and N.
std::vector<Int4Shape> forms(int64_t K, int64_t N) {
  std::vector<Int4Shape> out;
  for (int group : {32, 128})
    for (bool has_min : {false, true})
      if (K % group == 0) out.push_back({N, K, group, has_min});
  return out;
}

class GemmInt4 : public Scheduled {};

TEST_P(GemmInt4, IsTheFormulaInEveryTiling) {
  // Half a step; one past a unit; N of no tile, rows past every split tile; more steps of a slice
  // than stages; features past every tile.
  for (auto [T, K, N] :
       {std::tuple{1, 32, 1}, {9, 96, 33}, {65, 384, 68}, {9, 3200, 33}, {9, 96, 164}}) {
    for (const Int4Shape& s : forms(K, N)) {
      for (GemmTiling tiling : kTilings) {
        Problem<f16, f16>(static_cast<size_t>(T), s).compare(tiling);
        Problem<bf16, float>(static_cast<size_t>(T), s).compare(tiling);
      }
    }
  }
}

TEST_P(GemmInt4, ShapesOfTheRealModel) {
  Problem<bf16, bf16>(3, {960, 576, 32, true}).compare(GemmTiling::kAuto);  // q, k and v
  Problem<f16, float>(2, {576, 1536, 32, true}).compare(GemmTiling::kAuto, false, true);  // down
}

TEST_P(GemmInt4, BiasAndAdditionIntoBothTypes) {
  for (int64_t N : {8, 34, 35}) {  // in vectors, one by one
    for (GemmTiling tiling : kTilings) {
      for (int flags = 0; flags < 4; ++flags) {
        const bool has_bias = flags & 1, add = flags & 2;
        for (const Int4Shape& s : {Int4Shape{N, 64, 32, false}, Int4Shape{N, 128, 128, true}}) {
          Problem<f16, f16>(5, s).compare(tiling, has_bias, add);
          Problem<f16, float>(5, s).compare(tiling, has_bias, add);
          Problem<bf16, bf16>(5, s).compare(tiling, has_bias, add);
          Problem<bf16, float>(5, s).compare(tiling, has_bias, add);
        }
      }
    }
  }
}

TEST_P(GemmInt4, EveryNumberIsExact) {
  // One k alone: y is d (q - 8) x or d q x + m x, with powers of two for d, m and x.
  for (bool has_min : {false, true}) {
    Problem<f16, float> p(1, {16, 32, 32, has_min});
    Problem<bf16, float> brain(1, {16, 32, 32, has_min});
    for (int k = 0; k < 32; ++k) {
      auto ask = [&](auto& problem, auto zero, auto two) {
        std::fill(problem.x.begin(), problem.x.end(), zero);
        problem.x[static_cast<size_t>(k)] = two;
        for (size_t n = 0; n < 16; ++n) {
          for (size_t i = 0; i < 32; ++i)
            problem.q[n * 32 + i] = static_cast<uint8_t>((n + i) % 16);
          problem.d[n] = to_f16(0.25f);
          if (has_min) problem.m[n] = to_f16(-0.5f);
        }
        std::fill(problem.packed.begin(), problem.packed.end(), std::byte{});
        kernels::pack_int4_for_mma(problem.shape, 0, 16, problem.q.data(), problem.d.data(),
                                   has_min ? problem.m.data() : nullptr, problem.packed.data());
        std::vector<float> y = problem.run(GemmTiling::kAuto, 0, 1);
        for (int n = 0; n < 16; ++n)
          EXPECT_EQ(y[static_cast<size_t>(n)],
                    0.5f * static_cast<float>((n + k) % 16 - (has_min ? 2 : 8)));
      };
      ask(p, to_f16(0), to_f16(2));
      ask(brain, to_bf16(0), to_bf16(2));
    }
  }
}

// A step that ends behind K: the first one, one of the first stages, a later one.
template <class A>
void expect_bad_values_stay(float bad, bool has_min) {
  for (int64_t K : {32, 96, 352}) {
    Problem<A, float> p(9, {33, K, 32, has_min});
    for (size_t i = 0; i < p.q.size(); ++i) p.q[i] |= 1;  // no q - 8 is 0: infinity stays one
    p.x[3 * p.K + 1] = round_to<A>(bad);                  // where row 2 would read on
    if (!has_min) p.d[7 * p.K / 32] = to_f16(bad);
    std::fill(p.packed.begin(), p.packed.end(), std::byte{});
    kernels::pack_int4_for_mma(p.shape, 0, 33, p.q.data(), p.d.data(),
                               has_min ? p.m.data() : nullptr, p.packed.data());
    for (GemmTiling tiling : kTilings) {
      std::vector<float> y = p.run(tiling, 0, 9);
      for (size_t i = 0; i < y.size(); ++i)
        EXPECT_EQ(std::isfinite(y[i]), i / 33 != 3 && (has_min || i % 33 != 7)) << K << " " << i;
      if (has_min) continue;  // infinities of both signs may meet
      EXPECT_EQ(std::isnan(y[3 * 33]), std::isnan(bad));
      EXPECT_EQ(std::isnan(y[7]), std::isnan(bad));
    }
  }
}

TEST_P(GemmInt4, NanAndInfinityReachTheirRowOrFeatureOnly) {
  for (float bad : {NAN, INFINITY, -INFINITY})
    for (bool has_min : {false, true}) {
      expect_bad_values_stay<f16>(bad, has_min);
      expect_bad_values_stay<bf16>(bad, has_min);
    }
}

TEST_P(GemmInt4, NoRows) {
  EXPECT_TRUE((Problem<f16, f16>(0, {8, 64, 32, false}).run(GemmTiling::kAuto, 0, 0).empty()));
}

INSTANTIATE_TEST_SUITE_P(Schedules, GemmInt4, testing::Values(0u, 1u));

template <class T>
bool same_bits(const std::vector<T>& all, size_t first, const std::vector<T>& part) {
  return std::memcmp(all.data() + first, part.data(), part.size() * sizeof(T)) == 0;
}

// 5 steps, the last one half: slices of one step and empty ones. 12 steps: slices of 1 and 2.
template <class A>
void expect_rows_alone_equal_rows_together(const Int4Shape& shape) {
  const size_t T = 70;
  const auto N = static_cast<size_t>(shape.N);
  Problem<A, float> p(T, shape);
  std::vector<float> alone;
  for (size_t t = 0; t < T; ++t) {
    std::vector<float> row = p.run(GemmTiling::kAuto, t, 1);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  for (size_t n = 1; n <= T; ++n)
    ASSERT_TRUE(same_bits(alone, (T - n) * N, p.run(GemmTiling::kAuto, T - n, n))) << n << " rows";
  for (GemmTiling tiling : kTilings)
    ASSERT_TRUE(same_bits(alone, 0, p.run(tiling, 0, T))) << "tiling " << int(tiling);
}
TEST(GemmInt4Rows, EveryRowCountAndTilingGivesTheSameBitsInF16) {
  expect_rows_alone_equal_rows_together<f16>({40, 288, 32, true});
  expect_rows_alone_equal_rows_together<f16>({40, 768, 128, false});
}
TEST(GemmInt4Rows, EveryRowCountAndTilingGivesTheSameBitsInBf16) {
  expect_rows_alone_equal_rows_together<bf16>({40, 288, 32, false});
  expect_rows_alone_equal_rows_together<bf16>({40, 768, 128, true});
}

// 12 steps again: slices of several steps in every storage.
template <class A>
void expect_tilings_equal(bool has_min) {
  const size_t T = 20;
  Problem<A, float> p(T, {40, 768, 128, has_min});
  const std::vector<float> want = p.run(GemmTiling::kSplit8, 0, T);
  for (GemmTiling tiling : kTilings)
    EXPECT_TRUE(same_bits(want, 0, p.run(tiling, 0, T))) << "tiling " << int(tiling);
}
TEST(GemmInt4Rows, EveryTilingGivesTheSameBitsOfEveryStorage) {
  for (bool has_min : {false, true}) {
    expect_tilings_equal<f16>(has_min);
    expect_tilings_equal<bf16>(has_min);
  }
}

template <class A>
void expect_budget(GemmTiling tiling, bool has_min) {
  ptxvm::clear_measures();
  const Int4Shape aligned{128, 2304, 32, has_min};
  Problem<A, A>(64, aligned).run(tiling, 0, 64);
  // The scales of a warp's 32 features are 64 bytes, which go out in two halves: half a wavefront
  // too many for each of the (2 or 4) beside some 11.
  expect_within({.reached = 0, .wavefronts = 1.15}, "gemm_kernel");
  for (int flags = 0; flags < 4; ++flags) {  // every way out of the epilogue
    for (int64_t N : {36, 33}) {
      Problem<A, float>(64, {N, 64, 32, has_min}).run(tiling, 0, 64, flags & 1, flags & 2);
      Problem<A, A>(64, {N, 128, 128, has_min}).run(tiling, 0, 64, flags & 1, flags & 2);
    }
  }
  for (int group : {32, 128}) {
    if (tiling != GemmTiling::kSplit8) break;
    const Int4Shape wide{1064, 2304, group, has_min};
    Problem<A, float> sum(5, wide);
    DeviceArray<A> x(sum.x), normed(5 * 1064);
    DeviceArray<float> y(sum.y), weights(sum.bias);
    DeviceArray<std::byte> w(sum.packed);
    DeviceArray<uint32_t> counter(std::vector<uint32_t>{0});
    auto to = kernels::GemmOutput<A>::rows(View<float, 2>{y.data(), {5, 1064}},
                                           {group == 32 ? nullptr : weights.data(), group == 32});
    to.norm = {normed.data(), weights.data(), 1e-5f, counter.data()};
    kernels::gemm_int4(to, View<const A, 2>{x.data(), {5, 2304}}, {w.data(), wide}, nullptr,
                       tiling);
  }
  const Int4Shape shape{192, 256, 128, has_min};
  Problem<A, A> p(64, shape);  // the other ways out (their truth: gemm_forms_test.cc)
  DeviceArray<A> x(p.x), y(64 * 96);
  DeviceArray<std::byte> w(p.packed);
  const View<const A, 2> in{x.data(), {64, 256}};
  kernels::gemm_int4(kernels::GemmOutput<A>::silu({y.data(), {64, 96}}), in, {w.data(), shape},
                     nullptr, tiling);
  for (bool has_bias : {false, true}) {
    TurnedHeads<A> heads(64, 1, 1, 64, has_bias);
    kernels::gemm_int4(kernels::GemmOutput<A>::rope(heads.target()), in, {w.data(), shape}, nullptr,
                       tiling);
  }
  // Features stored one by one touch a sector up to 16 times.
  expect_within({.wavefronts = 1.15, .sectors = 1.5}, "gemm_kernel");
}
TEST(GemmInt4Budget, NoBankConflictNoSectorTwice) {
  for (GemmTiling tiling : kTilings)
    for (bool has_min : {false, true}) {
      expect_budget<f16>(tiling, has_min);
      expect_budget<bf16>(tiling, has_min);
    }
}

template <class A>
void expect_each_weight_once(GemmTiling tiling, size_t T, bool has_min) {
  const size_t K = 512, N = 128;
  Problem<A, A> p(T, {N, K, 32, has_min});
  ptxvm::clear_measures();
  p.run(tiling, 0, T);
  // w, its scales and minimums, y and, per block of features, x.
  const auto features = static_cast<size_t>(kernels::gemm_block(tiling).features);
  EXPECT_EQ(ptxvm::kernel_measures().at(0).sectors * 32,
            N * K / 2 + N * K / 32 * (has_min ? 4 : 2) + 2 * (N / features * T * K + T * N));
}
TEST(GemmInt4Budget, WeightsAreReadOncePerRowTile) {
  for (GemmTiling tiling : kTilings)
    for (bool has_min : {false, true}) {
      const auto T = static_cast<size_t>(kernels::gemm_block(tiling).rows);
      expect_each_weight_once<f16>(tiling, T, has_min);
      expect_each_weight_once<bf16>(tiling, T, has_min);
    }
}

// Warp instructions that one more step of 64 k costs a unit of 32 features at up to 8 rows.
template <class A>
double instructions_per_step(bool has_min) {
  double steps[2];
  for (size_t i = 0; i < 2; ++i) {
    Problem<A, A> p(8, {32, i == 0 ? 4096 : 8192, 32, has_min});
    ptxvm::clear_measures();
    p.run(GemmTiling::kSplit8, 0, 8);
    steps[i] = static_cast<double>(ptxvm::kernel_measures().at(0).warp_steps);
  }
  return (steps[1] - steps[0]) / 64;
}
// A step is 1,152 bytes (1,280 with minimums). A multiprocessor of the fastest memory in view, 4.8
// TB/s among 132, is due one in 32 (35) ns or 63 (70) cycles of 1.98 GHz, in which its schedulers
// issue 252 (280) instructions; 16 (24) of those counted here are zeros for mma that the hardware
// has for nothing. On an A100 it is due one in 113 cycles.
TEST(GemmInt4Budget, TheMemoryIsSlowerThanTheInstructions) {
  EXPECT_LE(instructions_per_step<f16>(false), 220);
  EXPECT_LE(instructions_per_step<bf16>(false), 235);
  EXPECT_LE(instructions_per_step<f16>(true), 260);
  EXPECT_LE(instructions_per_step<bf16>(true), 275);
}

// Refused before anything is asked of a device: the process that dies is a fork of one that may
// have used it, and could not.
TEST(GemmInt4DeathTest, RefusesOtherShapes) {
  alignas(16) static f16 a{};
  auto run = [&](int64_t y_N, int64_t K, Int4Shape s, GemmTiling tiling = GemmTiling::kAuto) {
    kernels::gemm_int4<f16, f16>({&a, {1, y_N}}, View<const f16, 2>{&a, {1, K}},
                                 {reinterpret_cast<const std::byte*>(&a), s}, {}, nullptr, tiling);
  };
  EXPECT_DEATH(run(8, 64, {8, 96, 32, false}), "differ in K");
  EXPECT_DEATH(run(8, 64, {8, 64, 64, false}), "groups of 32 or 128 only");
  EXPECT_DEATH(run(8, 64, {8, 64, 128, false}), "multiple of the group");
  EXPECT_DEATH(run(8, 64, {8, 64, 32, false}, GemmTiling::kSplit64), "no such tiling");
  EXPECT_DEATH(run(9, 64, {8, 64, 32, false}), "not that of the product");
}

}  // namespace
}  // namespace pf
