// Truth: the formula of kernels/rms_norm.h as a float64 loop, under several schedules.
#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"

namespace pf {
namespace {

constexpr float kEpsilon = 1e-5f;

// Exact.
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

template <class A>
void compare(size_t T, size_t E, const std::vector<float>& x) {
  std::vector<float> w = normal_values(E, 7);
  DeviceArray<float> dx(x), dw(w);
  DeviceArray<A> dy(T * E);
  auto rows = static_cast<int64_t>(T), width = static_cast<int64_t>(E);
  kernels::rms_norm<A>({dy.data(), {rows, width}}, View<const float, 2>{dx.data(), {rows, width}},
                       {dw.data(), {width}}, kEpsilon, nullptr);
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
  for (size_t E : {4u, 64u, 576u, 1028u, 2052u, 5124u, 8192u}) {
    for (size_t T : {0u, 1u, 3u}) {
      compare<f16>(T, E, normal_values(T * E, 3));
      compare<bf16>(T, E, normal_values(T * E, 5, 30));
    }
  }
}

TEST_P(RmsNorm, NanAndInfinityStayInTheirRow) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x = normal_values(3 * 64, 9);
    x[64 + 5] = bad;
    compare<f16>(3, 64, x);
    compare<bf16>(3, 64, x);
  }
}

TEST_P(RmsNorm, RowsOfNearlyNothing) {
  compare<f16>(2, 64, std::vector<float>(128, 0.0f));     // the root of epsilon alone
  compare<bf16>(2, 64, std::vector<float>(128, 1e-30f));  // squares below the smallest float
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
  // The compiler unrolls by 4 over passes.
  compare<f16>(1, 4096 + 1024, normal_values(4096 + 1024, 3));
  compare<bf16>(1, 4096 + 1024, normal_values(4096 + 1024, 3));
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
}

}  // namespace
}  // namespace pf
