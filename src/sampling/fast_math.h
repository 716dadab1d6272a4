#pragma once

#include <bit>
#include <cstdint>

namespace pf {

// exp and log in plain multiplications and additions: loops over them vectorise, and every device
// that rounds each operation to nearest gives the same bits (coupled text relies on that).

// e^x for x <= 0, relative error < 2e-7; x below -87 gives 0, so does -infinity; NaN stays NaN.
// x = n ln2 + r with |r| <= ln2 / 2; e^r by its Taylor polynomial of degree 7 (r^8/8! < 6e-9).
inline float exp_nonpositive(float x) {
  float clamped = x < -87.0f ? -87.0f : x;
  float shifted = clamped * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer
  float n = shifted - 12582912.0f;
  float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;  // ln2 in two parts
  float e =
      1.0f +
      r * (1.0f +
           r * (0.5f + r * (0.16666667f +
                            r * (0.041666668f +
                                 r * (0.0083333338f + r * (0.0013888889f + r * 1.9841270e-4f))))));
  int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(12582912.0f);
  float scaled = std::bit_cast<float>(std::bit_cast<int32_t>(e) + (exponent << 23));
  float e_x = x < -87.0f ? 0.0f : scaled;
  return x == x ? e_x : x;
}

// Natural logarithm of a positive normal x, error < 3e-7 relative to max(1, |log x|).
// x = 2^n m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
inline float log_positive(float x) {
  int32_t bits = std::bit_cast<int32_t>(x);
  int32_t n = (bits - 0x3f3504f3) >> 23;  // 0x3f3504f3 = sqrt(1/2)
  float m = std::bit_cast<float>(bits - n * (1 << 23));
  float s = (m - 1.0f) / (m + 1.0f), t = s * s;
  float series = 2.0f + t * (0.66666667f + t * (0.4f + t * (0.28571429f + t * 0.22222222f)));
  return s * series + static_cast<float>(n) * 0.69314718f;
}

}  // namespace pf
