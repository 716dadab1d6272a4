// Truth: the kernels that do the same one by one, to the bit (each is held to its definition by a
// test of its own), under several schedules.
#include "kernels/pass_ends.h"

#include <gtest/gtest.h>

#include "kernels/bits.h"
#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/gather_rows.h"
#include "kernels/rms_norm.h"
#include "kernels/rope_kv_write.h"

namespace pf {
namespace {

constexpr float kEpsilon = 1e-5f, kFactor = 1.25f;
constexpr int64_t kV = 7;

class PassEnds : public Scheduled {};

template <class A>
void compare_start(int64_t E, int64_t half, const std::vector<int32_t>& tokens) {
  const auto T = static_cast<int64_t>(tokens.size());
  std::vector<float> inverse;
  for (int64_t i = 0; i < half; ++i) inverse.push_back(1.0f / static_cast<float>(1 + 3 * i));
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < T; ++t) positions.push_back(100'003 * t);
  DeviceArray<A> embedding(random_values<A>(size_t(kV * E), 3));
  DeviceArray<float> norm(normal_values(size_t(E), 7)), di(inverse);
  DeviceArray<int32_t> dt(tokens), dp(positions);
  DeviceArray<float> x[] = {DeviceArray<float>(size_t(T * E)), DeviceArray<float>(size_t(T * E))},
                     angles[] = {DeviceArray<float>(size_t(T * 2 * half)),
                                 DeviceArray<float>(size_t(T * 2 * half))};
  DeviceArray<A> y[] = {DeviceArray<A>(size_t(T * E)), DeviceArray<A>(size_t(T * E))};
  kernels::start_pass<A>({.residual = {x[0].data(), {T, E}},
                          .normed = {y[0].data(), {T, E}},
                          .angles = {angles[0].data(), {T, 2, half}},
                          .embedding = {embedding.data(), {kV, E}},
                          .tokens = {dt.data(), {T}},
                          .positions = {dp.data(), {T}},
                          .norm = {norm.data(), {E}},
                          .inverse = {di.data(), {half}},
                          .epsilon = kEpsilon,
                          .rope_factor = kFactor},
                         nullptr);
  kernels::gather_rows<A, float>({x[1].data(), {T, E}}, {embedding.data(), {kV, E}},
                                 {dt.data(), {T}}, nullptr);
  kernels::rms_norm<A>({y[1].data(), {T, E}}, {x[1].data(), {T, E}}, {norm.data(), {E}}, kEpsilon,
                       nullptr);
  kernels::rope_angles({angles[1].data(), {T, 2, half}}, {dp.data(), {T}}, {di.data(), {half}},
                       kFactor, nullptr);
  EXPECT_EQ(x[0].host(), x[1].host());
  EXPECT_EQ(bits_of(y[0].host()), bits_of(y[1].host()));
  EXPECT_EQ(angles[0].host(), angles[1].host());
}

// One vector; narrower than the block; the real model; one past a tile; and of several passes.
TEST_P(PassEnds, AStartIsItsThreeKernels) {
  for (int64_t E : {4, 64, 576, 1028, 2052})
    for (const std::vector<int32_t>& tokens : {std::vector<int32_t>{}, {5}, {6, 6, -1, 0}})
      for (int64_t half : {32, 64}) {
        compare_start<f16>(E, half, tokens);
        compare_start<bf16>(E, half, tokens);
      }
  compare_start<f16>(8, 300, {1, 2});  // more angles than threads
}

template <class A>
void compare_picked(int64_t E, const std::vector<int32_t>& index, float spoilt) {
  const auto R = static_cast<int64_t>(index.size());
  std::vector<float> values = normal_values(size_t(kV * E), 3);
  values[size_t(5 * E + 1)] = spoilt;
  DeviceArray<float> x(values), norm(normal_values(size_t(E), 7)), picked(size_t(R * E));
  DeviceArray<int32_t> di(index);
  DeviceArray<A> got(size_t(R * E)), want(size_t(R * E));
  kernels::norm_picked_rows<A>({got.data(), {R, E}}, {x.data(), {kV, E}}, {di.data(), {R}},
                               {norm.data(), {E}}, kEpsilon, nullptr);
  kernels::gather_rows<float, float>({picked.data(), {R, E}}, {x.data(), {kV, E}}, {di.data(), {R}},
                                     nullptr);
  kernels::rms_norm<A>({want.data(), {R, E}}, {picked.data(), {R, E}}, {norm.data(), {E}}, kEpsilon,
                       nullptr);
  EXPECT_EQ(bits_of(got.host()), bits_of(want.host()));
}

TEST_P(PassEnds, PickedRowsAreNormedAsByTwoKernels) {
  for (int64_t E : {4, 64, 576, 1028, 2052})
    for (const std::vector<int32_t>& index : {std::vector<int32_t>{}, {3}, {6, 5, -1, 0, 6}})
      for (float spoilt : {0.5f, NAN, -INFINITY}) {
        compare_picked<f16>(E, index, spoilt);
        compare_picked<bf16>(E, index, spoilt);
      }
}

TEST_P(PassEnds, NoRowsLaunchNothing) {
  const uint64_t before = ptxvm::n_launches();
  compare_start<f16>(64, 32, {});
  compare_picked<f16>(64, {}, 1);
  EXPECT_EQ(ptxvm::n_launches(), before);
}

void expect_trap() {
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
  ptxvm::settings().print_findings = true;
  auto findings = ptxvm::take_findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, ptxvm::Kind::kTrap);
}

TEST(PassEndsBounds, ATokenPastTheTableTraps) {
  DeviceArray<f16> embedding(std::vector<f16>(kV * 8)), y(8);
  DeviceArray<float> x(8), angles(64), norm(std::vector<float>(8)), inverse(std::vector<float>(32));
  DeviceArray<int32_t> token(std::vector<int32_t>{int32_t{kV}}), position(std::vector<int32_t>{0});
  ptxvm::settings().print_findings = false;
  kernels::start_pass<f16>({.residual = {x.data(), {1, 8}},
                            .normed = {y.data(), {1, 8}},
                            .angles = {angles.data(), {1, 2, 32}},
                            .embedding = {embedding.data(), {kV, 8}},
                            .tokens = {token.data(), {1}},
                            .positions = {position.data(), {1}},
                            .norm = {norm.data(), {8}},
                            .inverse = {inverse.data(), {32}}},
                           nullptr);
  expect_trap();
}

TEST(PassEndsBounds, ARowPastTheTableTraps) {
  DeviceArray<float> x(std::vector<float>(kV * 8)), w(std::vector<float>(8));
  DeviceArray<f16> y(8);
  DeviceArray<int32_t> index(std::vector<int32_t>{int32_t{kV}});
  ptxvm::settings().print_findings = false;
  kernels::norm_picked_rows<f16>({y.data(), {1, 8}}, {x.data(), {kV, 8}}, {index.data(), {1}},
                                 {w.data(), {8}}, kEpsilon, nullptr);
  expect_trap();
}

TEST(PassEndsBudget, EveryByteIsAskedForOnce) {
  ptxvm::clear_measures();
  compare_start<f16>(4096 + 1024, 64, {6, -1, 0});  // the compiler unrolls by 4 over passes
  compare_start<bf16>(4096 + 1024, 32, {6, -1, 0});
  compare_picked<f16>(4096 + 1024, {6, -1, 0}, 1);
  compare_picked<bf16>(4096 + 1024, {6, -1, 0}, 1);
  expect_within({0.95, 1, 1}, "start_pass_kernel");
  expect_within({0.95, 1, 1}, "norm_picked_kernel");
}

INSTANTIATE_TEST_SUITE_P(Schedules, PassEnds, testing::Values(0u, 1u, 2u));

}  // namespace
}  // namespace pf
