// Truth: the sum of kernels/add_partials.h in its order, by a plain float loop, to the bit, under
// several schedules.
#include "kernels/add_partials.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"

namespace pf {
namespace {

void compare(size_t n, size_t T, size_t E, const std::vector<float>& partials,
             const std::vector<float>& old) {
  DeviceArray<float> p(partials), y(old);
  const auto rows = static_cast<int64_t>(T), width = static_cast<int64_t>(E);
  kernels::add_partials({y.data(), {rows, width}},
                        {p.data(), {static_cast<int64_t>(n), rows, width}}, nullptr);
  const std::vector<float> got = y.host();
  for (size_t i = 0; i < T * E; ++i) {
    float sum = partials[i];
    for (size_t r = 1; r < n; ++r) sum += partials[r * T * E + i];
    const float want = old[i] + sum;
    ASSERT_TRUE(std::isnan(want) ? std::isnan(got[i]) : std::memcmp(&got[i], &want, 4) == 0)
        << i << ": " << got[i] << ", not " << want;
  }
}

class AddPartials : public Scheduled {};

// Values of sizes so unlike that the order of the additions decides the last bits.
TEST_P(AddPartials, AddsInTheOrderOfTheRanks) {
  for (size_t n : {1u, 2u, 3u, 8u})
    for (size_t E : {4u, 20u, 576u, 1028u})  // one vector, odd, the real model, past a block
      for (size_t T : {0u, 1u, 5u}) {
        std::vector<float> partials = normal_values(n * T * E, 3, 1);
        for (size_t i = 0; i < partials.size(); i += 3) partials[i] *= 1e6f;
        compare(n, T, E, partials, normal_values(T * E, 4, 100));
      }
}

TEST_P(AddPartials, NanInfinityAndSignedZeroPassThrough) {
  std::vector<float> partials(2 * 8, 1.0f), old(8, 0.0f);
  partials[0] = NAN, partials[1] = INFINITY, partials[2] = INFINITY, partials[8 + 2] = -INFINITY;
  partials[3] = partials[8 + 3] = old[3] = -0.0f;
  old[4] = NAN;
  compare(2, 1, 8, partials, old);
}

INSTANTIATE_TEST_SUITE_P(Schedules, AddPartials, testing::Range(0u, 3u));

TEST(AddPartialsBudget, EveryByteIsAskedForOnce) {
  ptxvm::clear_measures();
  const size_t n = 7, T = 2, E = 1028;  // the compiler unrolls the shares by 4
  compare(n, T, E, normal_values(n * T * E, 3), normal_values(T * E, 4));
  expect_within({}, "add_partials_kernel");
  for (const ptxvm::Measure& m : ptxvm::kernel_measures())
    EXPECT_EQ(m.sectors * 32, 4 * (n + 2) * T * E) << "the bytes of the contract";
}

TEST(AddPartialsDeathTest, RefusesOtherShapes) {
  float x = 0;
  EXPECT_DEATH(kernels::add_partials({&x, {1, 6}}, {&x, {2, 1, 6}}, nullptr), "multiple of 4");
  EXPECT_DEATH(kernels::add_partials({&x, {1, 8}}, {&x, {2, 2, 8}}, nullptr),
               "shares' shape is not");
}

}  // namespace
}  // namespace pf
