// Truth: eq. 15 of Su et al. 2021 as a float64 loop (level 1).
#include "kernels/rope_kv_write.h"

#include <cmath>

#include "kernels/bits.h"
#include "kernels/budget.h"
#include "kernels/device_array.h"
#include "kernels/gemm.h"

namespace pf::kernels {
namespace {

struct Case {
  int64_t T, H, G, D, P;
  bool bias;
};

std::vector<float> frequencies(int64_t D) {
  std::vector<float> out;
  for (int64_t i = 0; i < D / 2; ++i)
    out.push_back(static_cast<float>(std::pow(1e4, -2.0 * double(i) / double(D))));
  return out;
}

class Rope : public Scheduled {};

// The double angle is off by 2^-52 of itself (131071 * 2^-52 = 3e-11), which is far below half an
// ulp of float at 1: cos and sin are within one float rounding, times the factor's own.
TEST_P(Rope, AnglesAreThoseOfTheFormula) {
  const std::vector<int32_t> positions = {0, 1, 7, 4095, 131071};
  for (int64_t D : {8, 64, 128}) {
    std::vector<float> inverse = frequencies(D);
    DeviceArray<int32_t> dp(positions);
    DeviceArray<float> di(inverse), out(positions.size() * static_cast<size_t>(D));
    rope_angles({out.data(), {5, 2, D / 2}}, {dp.data(), {5}}, {di.data(), {D / 2}}, 1.5f, nullptr);
    std::vector<float> got = out.host();
    for (size_t i = 0; i < got.size(); ++i) {
      double angle = double(positions[i / static_cast<size_t>(D)]) *
                     double(inverse[i % (static_cast<size_t>(D) / 2)]);
      ASSERT_NEAR(got[i],
                  1.5 * (i / (static_cast<size_t>(D) / 2) % 2 ? std::sin(angle) : std::cos(angle)),
                  0x1p-22)
          << i;
    }
  }
}

// What element (t, head, d) of the output must be, before rounding.
double turned(const std::vector<float>& x, const std::vector<float>& bias,
              const std::vector<float>& angles, const Case& c, int64_t t, int64_t head, int64_t d) {
  int64_t half = c.D / 2, width = (c.H + 2 * c.G) * c.D;
  auto in = [&](int64_t i) {  // paired: i, i + 1, i + half, i + half + 1, ...
    int64_t at = head * c.D + i % half / 2 * 4 + i % 2 + i / half * 2;
    return double(x[size_t(t * width + at)]) + (bias.empty() ? 0 : double(bias[size_t(at)]));
  };
  if (head >= c.H + c.G) return in(d);
  const float* angle = &angles[size_t(t * c.D + d % half)];
  return d < half ? in(d) * double(angle[0]) - in(d + half) * double(angle[half])
                  : in(d) * double(angle[0]) + in(d - half) * double(angle[half]);
}

template <class A>
void compare(const Case& c, double ulp) {
  size_t width = size_t((c.H + 2 * c.G) * c.D), T = size_t(c.T);
  auto x = random_values<float>(T * width, 1);
  auto bias = c.bias ? random_values<float>(width, 2) : std::vector<float>();
  auto angles = random_values<float>(T * size_t(c.D), 3, 0.7f);
  KvPlane<A> plane{nullptr, 1, 3 * c.T + 1, c.G, c.P, c.D};
  const std::vector<A> before = random_values<A>(size_t(plane.size()), 4);
  std::vector<A> queries = random_values<A>(T * size_t(c.H * c.D), 5), q_before = queries;
  std::vector<int32_t> places;  // one per block from 0 on, the second row is a padded one
  for (int64_t t = 0; t < c.T; ++t)
    places.push_back(t == 1 ? -1 : int32_t(3 * t * c.P + (5 * t) % c.P));
  DeviceArray<float> dx(x);
  DeviceArray<float> db(bias), da(angles);
  DeviceArray<int32_t> dp(places);
  DeviceArray<A> q(queries), kv(before);
  plane.data = kv.data();
  rope_kv_write(
      rope_target(View<A, 3>{q.data(), {c.T, c.H, c.D}}, plane, c.bias ? db.data() : nullptr,
                  View<const float, 3>{da.data(), {c.T, 2, c.D / 2}},
                  View<const int32_t, 1>{dp.data(), {c.T}}),
      View<const float, 2>{dx.data(), {c.T, int64_t(width)}}, nullptr);
  std::vector<A> want_kv = before, want_q = q_before, got_kv = kv.host(), got_q = q.host();
  // A is rounded once (half an ulp); the float sum of two products of values below 8 is off by at
  // most 3 roundings of 2^-24 * 64, which may turn one more rounding to A: one ulp of A in all.
  auto near = [&](A got, double want) {
    ASSERT_NEAR(to_float(got), want, ulp * std::abs(want) + 0x1p-17);
  };
  for (int64_t t = 0; t < c.T; ++t) {
    if (places[size_t(t)] < 0) continue;
    for (int64_t head = 0; head < c.H + 2 * c.G; ++head)
      for (int64_t d = 0; d < c.D; ++d) {
        int64_t p = places[size_t(t)], tile = p / c.P * 2 * c.G + head - c.H;
        size_t i =
            size_t(head < c.H ? (t * c.H + head) * c.D + d : (tile * c.P + p % c.P) * c.D + d);
        std::vector<A>&got = head < c.H ? got_q : got_kv, &rest = head < c.H ? want_q : want_kv;
        near(got[i], turned(x, bias, angles, c, t, head, d));
        rest[i] = got[i];  // whatever else differs must not have been written
      }
  }
  EXPECT_EQ(bits_of(got_kv), bits_of(want_kv)) << "another place was written";
  EXPECT_EQ(bits_of(got_q), bits_of(want_q));
}

TEST_P(Rope, RowsAreTurnedAndStored) {
  for (Case c : {Case{1, 1, 1, 8, 16, true}, Case{3, 9, 3, 64, 16, false},
                 Case{5, 4, 2, 128, 32, true}, Case{0, 4, 2, 64, 16, false}}) {
    compare<f16>(c, 0x1p-10);
    compare<bf16>(c, 0x1p-7);
  }
}

// A row of int8 is off by half its scale (rope_kv_write.h), and what is turned by the float error
// above. One K head holds NaN, one infinity, one V head nothing but zeros; none touches its
// neighbours.
template <class A>
void compare_int8(const Case& c) {
  const int64_t heads = c.H + 2 * c.G, width = heads * c.D;
  auto x = random_values<float>(size_t(c.T * width), 1);
  auto bias = c.bias ? random_values<float>(size_t(width), 2) : std::vector<float>();
  if (c.bias) std::fill_n(bias.begin() + (c.H + c.G) * c.D, c.D, 0.0f);
  auto angles = random_values<float>(size_t(c.T * c.D), 3, 0.7f);
  x[size_t(c.H * c.D + 5)] = NAN;
  x[size_t(width + c.H * c.D + 7)] = INFINITY;
  std::fill_n(x.begin() + (c.H + c.G) * c.D, c.D, 0.0f);
  KvPlane<A> plane{nullptr, 1, c.T + 1, c.G, c.P, c.D};
  const std::vector<int8_t> before(size_t(plane.size()), 77);
  DeviceArray<int8_t> kv(before);
  DeviceArray<float> scales(std::vector<float>(size_t(plane.n_scales()), -7));
  plane.int8 = kv.data(), plane.scales = scales.data();
  std::vector<int32_t> places;
  for (int64_t t = 0; t < c.T; ++t) places.push_back(int32_t(t * c.P + 3 * t % c.P));
  DeviceArray<float> dx(x);
  DeviceArray<float> db(bias), da(angles);
  DeviceArray<int32_t> dp(places);
  DeviceArray<A> q(size_t(c.T * c.H * c.D));
  rope_kv_write(
      rope_target(View<A, 3>{q.data(), {c.T, c.H, c.D}}, plane, c.bias ? db.data() : nullptr,
                  View<const float, 3>{da.data(), {c.T, 2, c.D / 2}},
                  View<const int32_t, 1>{dp.data(), {c.T}}),
      View<const float, 2>{dx.data(), {c.T, width}}, nullptr);
  std::vector<float> got_scales = scales.host(), rest(got_scales.size(), -7);
  std::vector<int8_t> got = kv.host(), untouched = before;
  for (int64_t t = 0; t < c.T; ++t)
    for (int64_t h = 0; h < 2 * c.G; ++h) {
      const int64_t p = places[size_t(t)], row = (p / c.P * 2 * c.G + h) * c.P + p % c.P;
      const float scale = rest[size_t(row)] = got_scales[size_t(row)];
      double most = 0;
      for (int64_t d = 0; d < c.D; ++d) {
        const size_t at = size_t(row * c.D + d);
        const double want = turned(x, bias, angles, c, t, c.H + h, d);
        most = std::max(most, std::abs(want));
        untouched[at] = got[at];
        if (std::isnan(scale)) continue;
        ASSERT_NEAR(double(got[at]) * double(scale), want,
                    double(scale) * (0.5 + 0x1p-15) + 0x1p-17)
            << "row " << t << " head " << h;
      }
      if (t < 2 && h == 0) {
        EXPECT_TRUE(std::isnan(scale));
        rest[size_t(row)] = -7, got_scales[size_t(row)] = -7;  // NaN is not equal to itself
      } else {
        EXPECT_NEAR(scale, most / 127, 0x1p-22 * most + 0x1p-17);
      }
      if (t == 0 && h == c.G) {
        EXPECT_EQ(scale, 0);
      }
    }
  EXPECT_EQ(got, untouched) << "another place was written";
  EXPECT_EQ(got_scales, rest);
}

TEST_P(Rope, Int8RowsAreOffByHalfAScale) {
  for (Case c :
       {Case{3, 9, 3, 64, 16, false}, Case{5, 4, 2, 128, 32, true}, Case{2, 2, 1, 64, 16, false}}) {
    compare_int8<f16>(c);
    compare_int8<bf16>(c);
  }
}

TEST(RopeBudget, EverySectorOnce) {
  ptxvm::clear_measures();
  compare<f16>({5, 6, 2, 64, 16, true}, 0x1p-10);
  compare<bf16>({5, 6, 2, 128, 16, true}, 0x1p-7);
  expect_within({0.95, 1, 1}, "rope_kv_write_kernel");
  // A scale is 4 bytes of a sector: up to 4 in a warp where the rest of it moves 32 sectors or
  // more.
  compare_int8<f16>({5, 6, 2, 64, 16, true});
  compare_int8<bf16>({5, 6, 2, 128, 16, true});
  DeviceArray<int32_t> positions(std::vector<int32_t>{1, 2, 700});
  DeviceArray<float> inverse(frequencies(64)), angles(3 * 64);
  rope_angles({angles.data(), {3, 2, 32}}, {positions.data(), {3}}, {inverse.data(), {32}}, 1,
              nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  expect_within({0.95, 1, 1 + 4.0 / 32}, "rope_kv_write_kernel");
  expect_within({0.95, 1, 1}, "rope_angles_kernel");
}

INSTANTIATE_TEST_SUITE_P(Schedules, Rope, testing::Values(0u, 1u, 2u));

}  // namespace
}  // namespace pf::kernels
