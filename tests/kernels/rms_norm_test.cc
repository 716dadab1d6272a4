// Truth: the formula of kernels/rms_norm.h as a float64 loop, under several schedules.
#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"

namespace pf {
namespace {

constexpr float kEpsilon = 1e-5f;

// x in float, after the addition; y is exact.
std::vector<double> oracle(const std::vector<float>& x, const std::vector<float>& w, size_t E) {
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size(); row += E) {
    double squares = 0;
    for (size_t e = 0; e < E; ++e) squares += double(x[row + e]) * x[row + e];
    double scale = 1 / std::sqrt(squares / double(E) + double(kEpsilon));
    for (size_t e = 0; e < E; ++e) y[row + e] = x[row + e] * scale * w[e];
  }
  return y;
}

// n = 0: rms_norm; otherwise add_rms_norm of n partials.
template <class A>
void compare(size_t T, size_t E, size_t n, std::vector<float> x) {
  std::vector<float> w = normal_values(E, 7), p = normal_values(n * T * E, 11, 0.25f);
  DeviceArray<float> dx(x), dw(w), dp(p);
  DeviceArray<A> dy(T * E);
  auto rows = static_cast<int64_t>(T), width = static_cast<int64_t>(E);
  View<A, 2> y{dy.data(), {rows, width}};
  View<float, 2> vx{dx.data(), {rows, width}};
  View<const float, 1> vw{dw.data(), {width}};
  if (n == 0) {
    kernels::rms_norm<A>(y, vx, vw, kEpsilon, nullptr);
  } else {
    View<const float, 3> vp{dp.data(), {static_cast<int64_t>(n), rows, width}};
    kernels::add_rms_norm<A>(y, vx, vp, vw, kEpsilon, nullptr);
    for (size_t i = 0; i < T * E; ++i) {
      float sum = p[i];
      for (size_t r = 1; r < n; ++r) sum += p[r * T * E + i];
      x[i] += sum;
    }
    std::vector<float> got = dx.host();
    for (size_t i = 0; i < T * E; ++i)
      ASSERT_TRUE(got[i] == x[i] || (std::isnan(got[i]) && std::isnan(x[i])))
          << "the residual at " << i;
  }
  std::vector<A> got = dy.host();
  std::vector<double> want = oracle(x, w, E);
  // The sum of squares has positive terms: 4 ceil(E / 1024) + 13 additions of 2^-24 each, halved by
  // the root; rsqrt is good to 2 units (2^-22), two products 2^-23: below 2^-19 for E <= 8192. Then
  // one rounding to A.
  for (size_t i = 0; i < T * E; ++i)
    expect_close(got[i], want[i], std::fabs(want[i]) * (kHalfUlp<A> + 0x1p-19) + kTiny<A>, "y", i);
}

class RmsNorm : public Scheduled {};

TEST_P(RmsNorm, IsTheFormula) {
  // One vector; narrower than the block; the real model; one past a tile; an odd one of two passes.
  for (size_t E : {4u, 64u, 576u, 1028u, 2052u}) {
    for (size_t T : {0u, 1u, 3u}) {
      compare<f16>(T, E, 0, normal_values(T * E, 3));
      compare<bf16>(T, E, 0, normal_values(T * E, 5, 30));
    }
  }
}

TEST_P(RmsNorm, AddsThePartialsInOrderFirst) {
  for (size_t E : {4u, 576u, 1028u}) {
    for (size_t n : {1u, 2u, 5u}) {
      compare<f16>(3, E, n, normal_values(3 * E, 3));
      compare<bf16>(1, E, n, normal_values(E, 5));
    }
  }
}

TEST_P(RmsNorm, NanAndInfinityStayInTheirRow) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x = normal_values(3 * 64, 9);
    x[64 + 5] = bad;
    compare<f16>(3, 64, 0, x);
    compare<bf16>(3, 64, 2, x);
  }
}

TEST_P(RmsNorm, RowsOfNearlyNothing) {
  compare<f16>(2, 64, 0, std::vector<float>(128, 0.0f));     // the root of epsilon alone
  compare<bf16>(2, 64, 0, std::vector<float>(128, 1e-30f));  // squares below the smallest float
}

INSTANTIATE_TEST_SUITE_P(Schedules, RmsNorm, testing::Range(0u, 4u));

TEST(RmsNormRows, ARowDoesNotDependOnItsNeighbours) {
  const size_t T = 5, E = 576;
  std::vector<float> x = normal_values(T * E, 21), w = normal_values(E, 22);
  DeviceArray<float> dx(x), dw(w);
  DeviceArray<f16> all(T * E), one(E);
  kernels::rms_norm<f16>({all.data(), {T, E}}, View<const float, 2>{dx.data(), {T, E}},
                         {dw.data(), {E}}, kEpsilon, nullptr);
  std::vector<f16> want = all.host();
  for (size_t t = 0; t < T; ++t) {
    kernels::rms_norm<f16>({one.data(), {1, E}}, View<const float, 2>{dx.data() + t * E, {1, E}},
                           {dw.data(), {E}}, kEpsilon, nullptr);
    std::vector<f16> got = one.host();
    for (size_t e = 0; e < E; ++e) ASSERT_EQ(got[e].bits, want[t * E + e].bits) << t << " " << e;
  }
}

TEST(RmsNormBudget, EveryByteIsAskedForOnce) {
  ptxvm::clear_measures();
  for (size_t n : {0u, 1u, 3u}) {  // the compiler unrolls by 4 over passes
    compare<f16>(1, 4096 + 1024, n, normal_values(4096 + 1024, 3));
    compare<bf16>(1, 4096 + 1024, n, normal_values(4096 + 1024, 3));
  }
  expect_within({}, "rms_norm_kernel");
}

TEST(RmsNormDeathTest, RefusesOtherShapes) {
  f16 y{};
  float x = 0;
  EXPECT_DEATH(kernels::rms_norm<f16>({&y, {1, 6}}, View<const float, 2>{&x, {1, 6}}, {&x, {6}},
                                      kEpsilon, nullptr),
               "multiple of 4");
  EXPECT_DEATH(kernels::rms_norm<f16>({&y, {1, 8}}, View<const float, 2>{&x, {1, 8}}, {&x, {4}},
                                      kEpsilon, nullptr),
               "shapes of x, y and w differ");
  EXPECT_DEATH(kernels::add_rms_norm<f16>({&y, {1, 8}}, {&x, {1, 8}}, {&x, {0, 1, 8}}, {&x, {8}},
                                          kEpsilon, nullptr),
               "partials' shape");
}

}  // namespace
}  // namespace pf
