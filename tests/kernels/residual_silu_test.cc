// Truth: the formula of kernels/residual_silu.h as a float64 loop, under several schedules.
#include "kernels/residual_silu.h"

#include <gtest/gtest.h>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"

namespace pf {
namespace {

template <class A>
void compare(size_t T, size_t E, const std::vector<float>& values,
             const std::vector<float>& product, bool in_place = false) {
  std::vector<A> x = round_all<A>(values);
  DeviceArray<A> in(x), out(T * E);
  DeviceArray<float> p(product);
  const auto rows = static_cast<int64_t>(T), width = static_cast<int64_t>(E);
  A* y = in_place ? in.data() : out.data();
  kernels::residual_silu<A>({y, {rows, width}}, View<const A, 2>{in.data(), {rows, width}},
                            View<const float, 2>{p.data(), {rows, width}}, nullptr);
  std::vector<A> got = in_place ? in.host() : out.host();
  // As silu_mul: the SiLU is good to 2^-15 of its value; then one addition, then one rounding to A.
  for (size_t i = 0; i < T * E; ++i) {
    double v = product[i], silu = v / (1 + std::exp(-v)), want = to_float(x[i]) + silu;
    double lost = v < -88.72 ? 0x1p-121 : 0;
    expect_close(
        got[i], want,
        std::fabs(want) * (kHalfUlp<A> + 0x1p-23) + std::fabs(silu) * 0x1p-15 + kTiny<A> + lost,
        "y", i);
  }
}

class ResidualSilu : public Scheduled {};

TEST_P(ResidualSilu, IsTheFormula) {
  for (size_t E : {8u, 24u, 576u, 2056u})  // one vector, a few, the real model, past a block
    for (size_t T : {0u, 1u, 5u}) {
      compare<f16>(T, E, normal_values(T * E, 3, 4), normal_values(T * E, 9, 6));
      compare<bf16>(T, E, normal_values(T * E, 5, 20), normal_values(T * E, 11, 30));
      compare<f16>(T, E, normal_values(T * E, 3, 4), normal_values(T * E, 9, 6), true);
    }
}

TEST_P(ResidualSilu, NanInfinityAndTheEndsOfTheRange) {
  std::vector<float> x(16, 2.0f), product(16, 1.0f);
  const float ends[] = {NAN, INFINITY, -INFINITY, 60000, -60000, -17, -90, 1e-6f};
  for (size_t i = 0; i < 8; ++i) product[i] = ends[i];
  product[2] = 0;  // -inf / inf is NaN in the formula as well: not a value that a row keeps
  x[9] = INFINITY, x[10] = NAN, x[11] = 1e-7f;
  compare<f16>(1, 16, x, product);
  compare<bf16>(1, 16, x, product);
}

INSTANTIATE_TEST_SUITE_P(Schedules, ResidualSilu, testing::Range(0u, 4u));

TEST(ResidualSiluBudget, EveryByteIsAskedForOnce) {
  ptxvm::clear_measures();
  compare<f16>(3, 576, normal_values(3 * 576, 3), normal_values(3 * 576, 4));
  expect_within({.reached = 0.99}, "residual_silu_kernel");
  for (const ptxvm::Measure& m : ptxvm::kernel_measures())
    EXPECT_EQ(m.sectors * 32, 8u * 3 * 576) << "the bytes of the contract";
}

TEST(ResidualSiluDeathTest, RefusesOtherShapes) {
  f16 x{};
  float p{};
  EXPECT_DEATH(kernels::residual_silu<f16>({&x, {1, 10}}, View<const f16, 2>{&x, {1, 10}},
                                           View<const float, 2>{&p, {1, 10}}, nullptr),
               "multiple of 4");
  EXPECT_DEATH(kernels::residual_silu<f16>({&x, {1, 16}}, View<const f16, 2>{&x, {1, 16}},
                                           View<const float, 2>{&p, {1, 8}}, nullptr),
               "shapes differ");
}

}  // namespace
}  // namespace pf
