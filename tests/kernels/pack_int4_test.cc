// Truth: the matrix itself, read back from the packed form by the layout that pack_int4.h states,
// lane by lane as the kernel reads it.
#include "kernels/pack_int4.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace pf {
namespace {

using kernels::Int4Shape;

struct Source {
  std::vector<uint8_t> q;  // [N, K]
  std::vector<f16> d, m;   // [N, K / group]
};
Source make(const Int4Shape& s) {
  Source out;
  uint32_t x = 7;
  auto next = [&] { return x = x * 1664525u + 1013904223u; };
  for (int64_t i = 0; i < s.N * s.K; ++i) out.q.push_back(static_cast<uint8_t>(next() >> 28));
  for (int64_t i = 0; i < s.N * s.K / s.group; ++i) {
    out.d.push_back({static_cast<uint16_t>(next() >> 16)});
    if (s.has_min) out.m.push_back({static_cast<uint16_t>(next() >> 16)});
  }
  return out;
}

std::vector<std::byte> pack(const Int4Shape& s, const Source& from, int64_t rows_at_once) {
  std::vector<std::byte> out(static_cast<size_t>(kernels::packed_int4_bytes(s)));
  for (int64_t row = 0; row < s.N; row += rows_at_once) {
    int64_t n = std::min(rows_at_once, s.N - row), groups = s.K / s.group;
    kernels::pack_int4_for_mma(s, row, n, from.q.data() + row * s.K, from.d.data() + row * groups,
                               s.has_min ? from.m.data() + row * groups : nullptr, out.data());
  }
  return out;
}

void expect_unpacks(const Int4Shape& s) {
  Source from = make(s);
  std::vector<std::byte> packed = pack(s, from, s.N);
  EXPECT_EQ(packed, pack(s, from, 32));
  const int64_t units = (s.N + 31) / 32, steps = (s.K + 63) / 64, groups = s.K / s.group;
  std::set<std::pair<int64_t, int64_t>> seen;
  for (int64_t word = 0; word < units * steps * 256; ++word) {
    uint32_t bits;
    std::memcpy(&bits, packed.data() + word * 4, 4);
    int64_t m = word % 2, i = word / 2 % 2, lane = word / 4 % 32, half = word / 128 % 2;
    int64_t step = word / 256 % steps, unit = word / 256 / steps;
    for (int64_t number = 0; number < 8; ++number) {
      int64_t n = unit * 32 + lane / 4 * 4 + 2 * m + number % 2;
      int64_t k = step * 64 + half * 32 + i * 16 + lane % 4 * 2 + number / 2 % 2 * 8 + number / 4;
      seen.insert({n, k});
      unsigned want = n < s.N && k < s.K ? from.q[static_cast<size_t>(n * s.K + k)] : 0;
      ASSERT_EQ(bits >> (4 * number) & 15, want) << n << " " << k;
    }
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(units * 32 * steps * 64)) << "each weight once";
  const std::byte* scales = packed.data() + units * steps * 1024;
  const int64_t padded = s.group == 32 ? steps * 2 : (steps + 1) / 2, planes = s.has_min ? 2 : 1;
  ASSERT_EQ(packed.size(), static_cast<size_t>(units * (steps * 1024 + padded * planes * 64)));
  for (int64_t n = 0; n < units * 32; ++n)
    for (int64_t g = 0; g < padded; ++g)
      for (int64_t plane = 0; plane < planes; ++plane) {
        uint16_t bits;
        std::memcpy(&bits, scales + ((n / 32 * padded + g) * planes + plane) * 64 + n % 32 * 2, 2);
        const auto& of = plane == 0 ? from.d : from.m;
        ASSERT_EQ(bits, n < s.N && g < groups ? of[static_cast<size_t>(n * groups + g)].bits : 0);
      }
}

TEST(PackInt4, EveryNumberAndScaleStandsWhereTheLayoutSays) {
  for (bool has_min : {false, true}) {
    expect_unpacks({32, 64, 32, has_min});
    expect_unpacks({33, 96, 32, has_min});  // one past a unit, half a step
    expect_unpacks({1, 32, 32, has_min});
    expect_unpacks({70, 128, 128, has_min});
    expect_unpacks({31, 384, 128, has_min});
    expect_unpacks({192, 576, 32, has_min});  // the real model's K projection
  }
}

TEST(PackInt4DeathTest, RefusesOtherGroupsAndNumbers) {
  std::vector<std::byte> out(8192);
  std::vector<uint8_t> q(256, 16);
  std::vector<f16> d(8);
  auto run = [&](Int4Shape s, int64_t n, const f16* m) {
    kernels::pack_int4_for_mma(s, 0, n, q.data(), d.data(), m, out.data());
  };
  EXPECT_DEATH(run({1, 64, 64, false}, 1, nullptr), "groups of 32 or 128 only");
  EXPECT_DEATH(run({1, 48, 32, false}, 1, nullptr), "multiple of the group");
  EXPECT_DEATH(run({1, 64, 32, false}, 2, nullptr), "rows outside");
  EXPECT_DEATH(run({1, 64, 32, true}, 1, nullptr), "minimums and shape disagree");
  EXPECT_DEATH(run({1, 64, 32, false}, 1, nullptr), "a number above 15");
}

}  // namespace
}  // namespace pf
