// Truth: the formula of kernels/silu_mul.h as a float64 loop, under several schedules.
#include "kernels/silu_mul.h"

#include <gtest/gtest.h>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"

namespace pf {
namespace {

template <class A>
void compare(size_t T, size_t F, const std::vector<float>& values) {
  std::vector<A> gate_up = round_all<A>(values);
  DeviceArray<A> in(gate_up), out(T * F);
  auto rows = static_cast<int64_t>(T), width = static_cast<int64_t>(F);
  kernels::silu_mul<A>({out.data(), {rows, width}}, View<const A, 2>{in.data(), {rows, 2 * width}},
                       nullptr);
  std::vector<A> got = out.host();
  // __expf is good to 2 + 1.17 |g| units: below 2^-16 of its value for |g| <= 88. Three more float
  // roundings, then one to A. Below g = -88.72 exp is infinite: 0 stands for |g exp(g)| <= 2^-121.
  for (size_t i = 0; i < T * F; ++i) {
    // Two gates, their two factors, two gates, ...
    const size_t at = i / F * 2 * F + i % F / 2 * 4 + i % 2;
    double g = to_float(gate_up[at]), u = to_float(gate_up[at + 2]),
           want = g / (1 + std::exp(-g)) * u;
    double lost = g < -88.72 ? 0x1p-121 * std::fabs(u) : 0;
    expect_close(got[i], want, std::fabs(want) * (kHalfUlp<A> + 0x1p-15) + kTiny<A> + lost, "y", i);
  }
}

class SiluMul : public Scheduled {};

TEST_P(SiluMul, IsTheFormula) {
  for (size_t F : {4u, 24u, 1536u, 2052u}) {  // one vector, a few, the real model, past a block
    for (size_t T : {0u, 1u, 5u}) {
      compare<f16>(T, F, normal_values(T * 2 * F, 3, 4));
      compare<bf16>(T, F, normal_values(T * 2 * F, 5, 20));
    }
  }
}

TEST_P(SiluMul, NanInfinityAndTheEndsOfTheRange) {
  std::vector<float> v(32, 2.0f);
  const float gates[] = {NAN, INFINITY, -INFINITY, 60000, -60000, -17, -90, 1e-6f};
  for (size_t i = 0; i < 8; ++i) v[i / 2 * 4 + i % 2] = gates[i];
  v[16 + 3] = INFINITY, v[16 + 6] = NAN, v[16 + 7] = 1e-7f;  // of gates 2
  compare<f16>(1, 16, v);
  compare<bf16>(1, 16, v);
}

INSTANTIATE_TEST_SUITE_P(Schedules, SiluMul, testing::Range(0u, 4u));

TEST(SiluMulBudget, EveryByteIsAskedForOnce) {
  ptxvm::clear_measures();
  compare<f16>(3, 1536, normal_values(3 * 2 * 1536, 3));
  compare<bf16>(3, 1536, normal_values(3 * 2 * 1536, 3));
  expect_within({.reached = 0.99}, "silu_mul_kernel");
  for (const ptxvm::Measure& m : ptxvm::kernel_measures())
    EXPECT_EQ(m.sectors * 32, 6u * 3 * 1536) << "the bytes of the contract";
}

TEST(SiluMulDeathTest, RefusesOtherShapes) {
  f16 x{};
  EXPECT_DEATH(kernels::silu_mul<f16>({&x, {1, 6}}, View<const f16, 2>{&x, {1, 12}}, nullptr),
               "multiple of 4");
  EXPECT_DEATH(kernels::silu_mul<f16>({&x, {1, 16}}, View<const f16, 2>{&x, {1, 16}}, nullptr),
               "gate_up's shape");
}

}  // namespace
}  // namespace pf
