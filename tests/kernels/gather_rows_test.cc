// Truth: y[i] is row index[i] of x to the bit, by plain indexing, under several schedules.
#include "kernels/gather_rows.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"

namespace pf {
namespace {

template <class From, class To>
void compare(size_t V, size_t E, const std::vector<int32_t>& index) {
  std::vector<float> values = normal_values(V * E, 3);
  values[0] = NAN, values[E - 1] = -INFINITY, values[1] = -0.0f;
  std::vector<From> x = round_all<From>(values);
  DeviceArray<From> dx(x);
  DeviceArray<int32_t> di(index);
  DeviceArray<To> dy(index.size() * E);
  auto rows = static_cast<int64_t>(index.size()), width = static_cast<int64_t>(E);
  kernels::gather_rows<From, To>({dy.data(), {rows, width}},
                                 {dx.data(), {static_cast<int64_t>(V), width}}, {di.data(), {rows}},
                                 nullptr);
  std::vector<To> got = dy.host();
  for (size_t i = 0; i < got.size(); ++i) {
    int32_t from = index[i / E];
    float want = from < 0 ? 0 : to_float(x[static_cast<size_t>(from) * E + i % E]);
    float g = to_float(got[i]);
    ASSERT_TRUE(std::isnan(want) ? std::isnan(g) : std::memcmp(&g, &want, 4) == 0)
        << i << ": " << g << ", not " << want;
  }
}

class GatherRows : public Scheduled {};

TEST_P(GatherRows, CopiesAndWidens) {
  for (size_t E : {4u, 20u, 576u, 1028u}) {  // one vector, odd, the real model, past a pass
    for (const std::vector<int32_t>& index :
         {std::vector<int32_t>{}, {0}, {6, 6, 0, -1, 3}, {-1}}) {
      compare<f16, float>(7, E, index);
      compare<bf16, float>(7, E, index);
      compare<float, float>(7, E, index);
      compare<f16, f16>(7, E, index);
      compare<bf16, bf16>(7, E, index);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, GatherRows, testing::Range(0u, 3u));

TEST(GatherRowsBounds, AnIndexPastTheTableTraps) {
  DeviceArray<f16> x(std::vector<f16>(7 * 8)), y(8);
  DeviceArray<int32_t> index(std::vector<int32_t>{7});
  ptxvm::settings().print_findings = false;
  kernels::gather_rows<f16, f16>({y.data(), {1, 8}}, {x.data(), {7, 8}}, {index.data(), {1}},
                                 nullptr);
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
  ptxvm::settings().print_findings = true;
  auto findings = ptxvm::take_findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, ptxvm::Kind::kTrap);
}

TEST(GatherRowsBudget, EveryByteIsAskedForOnce) {
  ptxvm::clear_measures();
  const size_t E = 4096 + 1024;  // the compiler unrolls by 4 over passes
  compare<f16, float>(7, E, {6, -1, 0, 3});
  expect_within({}, "gather_rows_kernel");
  for (const ptxvm::Measure& m : ptxvm::kernel_measures())
    EXPECT_LE(m.sectors, E * (3 * 6 + 4) / 32 + 4 * 8)
        << "3 rows read, 4 written, the index per warp";
}

TEST(GatherRowsDeathTest, RefusesOtherShapes) {
  f16 x{};
  int32_t i = 0;
  EXPECT_DEATH((kernels::gather_rows<f16, f16>({&x, {1, 6}}, {&x, {1, 6}}, {&i, {1}}, nullptr)),
               "multiple of 4");
  EXPECT_DEATH((kernels::gather_rows<f16, f16>({&x, {1, 8}}, {&x, {1, 4}}, {&i, {1}}, nullptr)),
               "shapes of x, y and index differ");
}

}  // namespace
}  // namespace pf
