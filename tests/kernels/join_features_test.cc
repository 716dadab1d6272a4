// Truth: the formula of kernels/join_features.h as a float64 loop, under several schedules.
#include "kernels/join_features.h"

#include <gtest/gtest.h>

#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/half_values.h"

namespace pf {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr size_t kV = 5;  // rows of the embedding; of states there are 3 + 0 + 4

template <class A, class S>
struct Case {
  Case(size_t width, std::vector<int32_t> t, std::vector<int32_t> i, bool normed)
      : E(width), tokens(std::move(t)), index(std::move(i)), has_norm(normed) {
    embedding = round_all<A>(normal_values(kV * E, 3));
    if constexpr (std::is_same_v<S, float>)
      states = normal_values(7 * E, 4, 2);
    else
      states = round_all<S>(normal_values(7 * E, 4, 2));
    w = normal_values(2 * E, 5);
  }

  std::vector<A> run() const {
    const auto width = static_cast<int64_t>(E), T = static_cast<int64_t>(tokens.size());
    auto cut = states.begin() + 3 * static_cast<std::ptrdiff_t>(E);
    DeviceArray<A> dy(2 * E * tokens.size()), de(embedding);
    DeviceArray<S> first(std::vector<S>(states.begin(), cut)),
        last(std::vector<S>(cut, states.end()));
    DeviceArray<float> we(std::vector<float>(w.begin(), w.begin() + width)),
        ws(std::vector<float>(w.begin() + width, w.end()));
    DeviceArray<int32_t> dt(tokens), di(index);
    const View<const S, 2> tables[] = {
        {first.data(), {3, width}}, {nullptr, {0, width}}, {last.data(), {4, width}}};
    kernels::join_features<A, S>(
        {dy.data(), {T, 2 * width}}, {de.data(), {static_cast<int64_t>(kV), width}},
        {dt.data(), {T}}, tables, {index.empty() ? nullptr : di.data(), {T}},
        has_norm ? we.data() : nullptr, has_norm ? ws.data() : nullptr, kEpsilon, nullptr);
    return dy.host();
  }

  // Half a row by the definition.
  template <class X>
  std::vector<double> want(const std::vector<X>& table, int32_t row, const float* weight) const {
    std::vector<double> y(E, 0);
    if (row < 0) return y;
    double squares = 0;
    for (size_t e = 0; e < E; ++e) {
      if constexpr (std::is_same_v<X, float>)
        y[e] = table[static_cast<size_t>(row) * E + e];
      else
        y[e] = to_float(table[static_cast<size_t>(row) * E + e]);
      squares += y[e] * y[e];
    }
    if (has_norm)
      for (size_t e = 0; e < E; ++e)
        y[e] *= weight[e] / std::sqrt(squares / double(E) + double(kEpsilon));
    return y;
  }

  void compare() const {
    std::vector<A> got = run();
    for (size_t t = 0; t < tokens.size(); ++t) {
      const int32_t row = index.empty() ? static_cast<int32_t>(t) : index[t];
      std::vector<double> both = want(embedding, tokens[t], w.data());
      for (double v : want(states, row, w.data() + E)) both.push_back(v);
      // As in rms_norm_test: 2^-19 of the norm, then one rounding to A.
      for (size_t e = 0; e < 2 * E; ++e)
        expect_close(got[t * 2 * E + e], both[e],
                     std::fabs(both[e]) * (kHalfUlp<A> + 0x1p-19) + kTiny<A>, "y", t * 2 * E + e);
    }
  }

  size_t E;
  std::vector<int32_t> tokens, index;
  bool has_norm;
  std::vector<A> embedding;
  std::vector<S> states;
  std::vector<float> w;
};

class JoinFeatures : public Scheduled {};

TEST_P(JoinFeatures, IsTheFormula) {
  for (size_t E : {4u, 64u, 576u, 1028u})
    for (bool norm : {true, false}) {
      Case<f16, f16>(E, {4, -1, 0, 4}, {6, 3, -1, 2}, norm).compare();
      Case<bf16, bf16>(E, {1}, {0}, norm).compare();
      Case<f16, float>(E, {2, 3, 0}, {}, norm).compare();  // row t of the first table
      Case<bf16, float>(E, {2, 3}, {5, 5}, norm).compare();
      Case<bf16, bf16>(E, {}, {}, norm).compare();
    }
}

INSTANTIATE_TEST_SUITE_P(Schedules, JoinFeatures, testing::Range(0u, 3u));

TEST(JoinFeaturesRows, ARowDoesNotDependOnItsNeighbours) {
  const size_t E = 576;
  std::vector<bf16> all = Case<bf16, bf16>(E, {0, 1, 2, 3}, {0, 1, 4, 6}, true).run();
  std::vector<bf16> one = Case<bf16, bf16>(E, {2}, {4}, true).run();
  for (size_t e = 0; e < 2 * E; ++e) ASSERT_EQ(one[e].bits, all[2 * 2 * E + e].bits) << e;
}

TEST(JoinFeaturesBounds, AnIndexPastItsTablesTraps) {
  for (auto [token, state] : {std::pair{5, 0}, {0, 7}}) {
    DeviceArray<f16> y(16), table(std::vector<f16>(7 * 8));
    DeviceArray<int32_t> tokens(std::vector<int32_t>{token}), index(std::vector<int32_t>{state});
    const View<const f16, 2> states[] = {
        {table.data(), {3, 8}}, {nullptr, {0, 8}}, {table.data(), {4, 8}}};
    ptxvm::settings().print_findings = false;
    kernels::join_features<f16, f16>({y.data(), {1, 16}}, {table.data(), {kV, 8}},
                                     {tokens.data(), {1}}, states, {index.data(), {1}}, nullptr,
                                     nullptr, kEpsilon, nullptr);
    EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
    ptxvm::settings().print_findings = true;
    auto findings = ptxvm::take_findings();
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].kind, ptxvm::Kind::kTrap);
  }
}

template <class A, class S>
void join_each_way() {
  for (bool norm : {true, false}) {  // the compiler unrolls by 4 over passes
    Case<A, S>(4096 + 1024, {4, -1, 0}, {6, -1, 2}, norm).compare();
    Case<A, S>(4096 + 1024, {4, 0}, {}, norm).compare();
  }
}
TEST(JoinFeaturesBudget, EveryByteIsAskedForOnce) {
  ptxvm::clear_measures();
  join_each_way<f16, f16>();
  join_each_way<f16, float>();
  join_each_way<bf16, bf16>();
  join_each_way<bf16, float>();
  expect_within({}, "join_features_kernel");
}

TEST(JoinFeaturesDeathTest, RefusesOtherShapes) {
  f16 x{};
  int32_t i = 0;
  const View<const f16, 2> states[3] = {{&x, {1, 8}}, {nullptr, {0, 8}}, {nullptr, {0, 8}}};
  EXPECT_DEATH((kernels::join_features<f16, f16>({&x, {1, 8}}, {&x, {1, 8}}, {&i, {1}}, states,
                                                 {&i, {1}}, nullptr, nullptr, kEpsilon, nullptr)),
               "shapes of y, embedding, tokens and index differ");
}

}  // namespace
}  // namespace pf
