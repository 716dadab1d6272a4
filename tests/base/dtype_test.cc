// Truth: the definitions of binary16 and bfloat16, by exhausting all 65,536 patterns, and
// hand-worked roundings.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pf {
namespace {

// The value of a binary16 pattern by its definition.
double f16_value(unsigned bits) {
  int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(F16, EveryPatternReadsAsItsDefinitionAndRoundTrips) {
  for (unsigned b = 0; b < 65536; ++b) {
    float v = to_float(f16{static_cast<uint16_t>(b)});
    double want = f16_value(b);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(v)) << b;
      EXPECT_TRUE(std::isnan(to_float(to_f16(v)))) << b;
      continue;
    }
    ASSERT_EQ(v, want) << b;
    ASSERT_EQ(std::signbit(v), (b & 0x8000) != 0) << b;
    ASSERT_EQ(to_f16(v).bits, b);
  }
}

TEST(F16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(to_f16(1.0f + 0x1p-11f).bits, 0x3c00);      // half way, even below
  EXPECT_EQ(to_f16(1.0f + 3 * 0x1p-11f).bits, 0x3c02);  // half way, even above
  EXPECT_EQ(to_f16(1.0f + 0x1p-11f + 0x1p-20f).bits, 0x3c01);
  EXPECT_EQ(to_f16(65519.0f).bits, 0x7bff);  // below 65520: the largest finite
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);  // half way to 65536: infinity
  EXPECT_EQ(to_f16(0x1p-25f).bits, 0x0000);  // half of the least subnormal, even
  EXPECT_EQ(to_f16(0x1.8p-25f).bits, 0x0001);
  EXPECT_EQ(to_f16(-0.0f).bits, 0x8000);
}

TEST(Bf16, RoundTripsAndRoundsToNearestTiesToEven) {
  for (unsigned b = 0; b < 65536; ++b) {
    float v = to_float(bf16{static_cast<uint16_t>(b)});
    if (std::isnan(v)) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(v))));
    } else {
      ASSERT_EQ(to_bf16(v).bits, b);
    }
  }
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f).bits, 0x3f80);      // half way, even below
  EXPECT_EQ(to_bf16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);  // half way, even above
  EXPECT_EQ(to_bf16(3.4e38f).bits, 0x7f80);             // past the largest bf16: infinity
}

}  // namespace
}  // namespace pf
