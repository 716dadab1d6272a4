// Truth: y[i] is row index[i] of x, or y[to[i]] row from[i], to the bit, by plain indexing, under
// several schedules.
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

template <class To, class From>
To converted(From v) {
  if constexpr (std::is_same_v<From, To>)
    return v;
  else if constexpr (std::is_same_v<To, f16>)
    return to_f16(v);
  else
    return to_bf16(v);
}

// y keeps what it held where no row is placed.
template <class From, class To>
void compare_copy(size_t Tx, size_t Ty, size_t E, const std::vector<int32_t>& from,
                  const std::vector<int32_t>& to) {
  std::vector<float> values = normal_values(Tx * E, 5);
  values[0] = NAN, values[E - 1] = -INFINITY, values[1] = -0.0f;
  std::vector<From> x = round_all<From>(values);
  std::vector<To> want = round_all<To>(normal_values(Ty * E, 6));
  DeviceArray<From> dx(x);
  DeviceArray<To> dy(want);
  DeviceArray<int32_t> df(from), dt(to);
  auto n = static_cast<int64_t>(from.size()), width = static_cast<int64_t>(E);
  kernels::copy_rows<From, To>({dy.data(), {static_cast<int64_t>(Ty), width}},
                               {dx.data(), {static_cast<int64_t>(Tx), width}}, {df.data(), {n}},
                               {dt.data(), {n}}, nullptr);
  for (size_t i = 0; i < from.size(); ++i)
    for (size_t e = 0; e < E && from[i] >= 0; ++e)
      want[static_cast<size_t>(to[i]) * E + e] =
          converted<To>(x[static_cast<size_t>(from[i]) * E + e]);
  std::vector<To> got = dy.host();
  for (size_t i = 0; i < got.size(); ++i) {
    float w = to_float(want[i]), g = to_float(got[i]);
    ASSERT_TRUE(std::isnan(w) ? std::isnan(g) : std::memcmp(&g, &w, 4) == 0)
        << i << ": " << g << ", not " << w;
  }
}

class GatherRows : public Scheduled {};

TEST_P(GatherRows, PlacesWhereItIsToldAndNowhereElse) {
  for (size_t E : {4u, 20u, 576u, 1028u}) {
    for (const auto& [from, to] :
         std::vector<std::pair<std::vector<int32_t>, std::vector<int32_t>>>{
             {{}, {}}, {{0}, {4}}, {{6, 6, -1, 0, 3}, {2, 0, 1, 4, 3}}}) {
      compare_copy<float, float>(7, 5, E, from, to);
      compare_copy<float, f16>(7, 5, E, from, to);
      compare_copy<float, bf16>(7, 5, E, from, to);
      compare_copy<f16, f16>(7, 5, E, from, to);
      compare_copy<bf16, bf16>(7, 5, E, from, to);
    }
  }
}

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

// Tables of 3, 0 and 5 rows.
template <class A>
void compare_joined(size_t E, const std::vector<int32_t>& index) {
  std::vector<A> x = round_all<A>(normal_values(8 * E, 3));
  auto cut = x.begin() + 3 * static_cast<std::ptrdiff_t>(E);
  DeviceArray<A> first(std::vector<A>(x.begin(), cut)), last(std::vector<A>(cut, x.end()));
  DeviceArray<A> dy(index.size() * E);
  DeviceArray<int32_t> di(index);
  auto width = static_cast<int64_t>(E), T = static_cast<int64_t>(index.size());
  const View<const A, 2> tables[] = {
      {first.data(), {3, width}}, {nullptr, {0, width}}, {last.data(), {5, width}}};
  kernels::gather_joined<A>({dy.data(), {T, width}}, tables, {di.data(), {T}}, nullptr);
  std::vector<A> got = dy.host();
  for (size_t i = 0; i < got.size(); ++i) {
    int32_t from = index[i / E];
    ASSERT_EQ(got[i].bits, from < 0 ? 0 : x[static_cast<size_t>(from) * E + i % E].bits) << i;
  }
}

TEST_P(GatherRows, TablesStandOneBehindTheOther) {
  for (size_t E : {4u, 20u, 576u, 1028u})
    for (const std::vector<int32_t>& index :
         {std::vector<int32_t>{}, {0}, {2, 3, -1, 7, 7}, {-1}}) {
      compare_joined<f16>(E, index);
      compare_joined<bf16>(E, index);
    }
}

TEST(GatherRowsBounds, AnIndexPastAllTablesTraps) {
  DeviceArray<f16> x(std::vector<f16>(2 * 8)), y(8);
  DeviceArray<int32_t> index(std::vector<int32_t>{6});
  ptxvm::settings().print_findings = false;
  const View<const f16, 2> two{x.data(), {2, 8}}, tables[] = {two, two, two};
  kernels::gather_joined<f16>({y.data(), {1, 8}}, tables, {index.data(), {1}}, nullptr);
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
  ptxvm::settings().print_findings = true;
  auto findings = ptxvm::take_findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, ptxvm::Kind::kTrap);
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

TEST(GatherRowsBounds, AnIndexOutsideEitherTableOfACopyTraps) {
  for (auto [from, to] : {std::pair{7, 0}, {0, 3}, {0, -1}}) {
    DeviceArray<f16> x(std::vector<f16>(7 * 8)), y(3 * 8);
    DeviceArray<int32_t> source(std::vector<int32_t>{from}), place(std::vector<int32_t>{to});
    ptxvm::settings().print_findings = false;
    kernels::copy_rows<f16, f16>({y.data(), {3, 8}}, {x.data(), {7, 8}}, {source.data(), {1}},
                                 {place.data(), {1}}, nullptr);
    EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
    ptxvm::settings().print_findings = true;
    auto findings = ptxvm::take_findings();
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].kind, ptxvm::Kind::kTrap);
  }
}

TEST(GatherRowsBudget, EveryByteIsAskedForOnce) {
  ptxvm::clear_measures();
  const size_t E = 4096 + 1024;  // the compiler unrolls by 4 over passes
  compare<f16, float>(7, E, {6, -1, 0, 3});
  compare_copy<float, f16>(4, 4, E, {2, -1, 0, 3}, {3, 2, 1, 0});
  compare_joined<f16>(E, {1, 4, -1, 5});
  for (const char* kernel : {"gather_rows", "copy_rows", "gather_joined"})
    expect_within({}, kernel);
  for (const ptxvm::Measure& m : ptxvm::kernel_measures())
    EXPECT_LE(m.sectors, E * (3 * 6 + 4) / 32 + 4 * 2 * 8)
        << "3 rows read, 3 or 4 written, one or two indices per warp";
}

template <class A>
void copy_each_way(size_t E) {
  compare<A, float>(7, E, {6, -1, 0, 3});
  compare<A, A>(7, E, {6, -1, 0, 3});
  compare_copy<float, A>(4, 4, E, {2, -1, 0, 3}, {3, 2, 1, 0});
  compare_copy<A, A>(4, 4, E, {2, -1, 0, 3}, {3, 2, 1, 0});
  compare_joined<A>(E, {1, 4, -1, 5});
}
TEST(GatherRowsBudget, OfEveryType) {
  ptxvm::clear_measures();
  const size_t E = 4096 + 1024;
  copy_each_way<f16>(E);
  copy_each_way<bf16>(E);
  compare<float, float>(7, E, {6, -1, 0, 3});
  compare_copy<float, float>(4, 4, E, {2, -1, 0, 3}, {3, 2, 1, 0});
  for (const char* kernel : {"gather_rows", "copy_rows", "gather_joined"})
    expect_within({}, kernel);
}

TEST(GatherRowsDeathTest, RefusesOtherShapes) {
  f16 x{};
  int32_t i = 0;
  EXPECT_DEATH((kernels::gather_rows<f16, f16>({&x, {1, 6}}, {&x, {1, 6}}, {&i, {1}}, nullptr)),
               "multiple of 4");
  EXPECT_DEATH((kernels::gather_rows<f16, f16>({&x, {1, 8}}, {&x, {1, 4}}, {&i, {1}}, nullptr)),
               "shapes of x, y and index differ");
  EXPECT_DEATH(
      (kernels::copy_rows<f16, f16>({&x, {1, 8}}, {&x, {1, 8}}, {&i, {1}}, {&i, {2}}, nullptr)),
      "shapes of x, y, from and to differ");
}

}  // namespace
}  // namespace pf
