#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace pf {

// exp and log in plain multiplications and additions: loops over them vectorise, and every device
// that rounds each operation to nearest gives the same bits (coupled text relies on that).

// c + r * x, rounded twice: one step of Horner's rule.
PF_HOST_DEVICE inline float horner(float c, float r, float x) { return add_rn(c, mul_rn(r, x)); }

// e^x for x <= 0, relative error < 2e-7; x below -87 gives 0, so does -infinity; NaN stays NaN.
// x = n ln2 + r with |r| <= ln2 / 2; e^r by its Taylor polynomial of degree 7 (r^8/8! < 6e-9).
PF_HOST_DEVICE inline float exp_nonpositive(float x) {
  float clamped = x < -87.0f ? -87.0f : x;
  float shifted = horner(12582912.0f, clamped, 1.44269504f);  // 1.5 * 2^23: rounds to an integer
  float n = shifted - 12582912.0f;
  // ln2 in two parts
  float r = sub_rn(sub_rn(clamped, mul_rn(n, 0.693359375f)), mul_rn(n, -2.12194440e-4f));
  float e = horner(0.0013888889f, r, 1.9841270e-4f);
  e = horner(0.0083333338f, r, e);
  e = horner(0.041666668f, r, e);
  e = horner(0.16666667f, r, e);
  e = horner(0.5f, r, e);
  e = horner(1.0f, r, e);
  e = horner(1.0f, r, e);
  int32_t exponent = __builtin_bit_cast(int32_t, shifted) - 0x4b400000;  // bits of 1.5 * 2^23
  float scaled = __builtin_bit_cast(float, __builtin_bit_cast(int32_t, e) + (exponent << 23));
  float e_x = x < -87.0f ? 0.0f : scaled;
  return x == x ? e_x : x;
}

// Natural logarithm of a positive normal x, error < 3e-7 relative to max(1, |log x|).
// x = 2^n m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
PF_HOST_DEVICE inline float log_positive(float x) {
  int32_t bits = __builtin_bit_cast(int32_t, x);
  int32_t n = (bits - 0x3f3504f3) >> 23;  // 0x3f3504f3 = sqrt(1/2)
  float m = __builtin_bit_cast(float, bits - n * (1 << 23));
  float s = div_rn(m - 1.0f, m + 1.0f), t = mul_rn(s, s);
  float series = horner(0.28571429f, t, 0.22222222f);
  series = horner(0.4f, t, series);
  series = horner(0.66666667f, t, series);
  series = horner(2.0f, t, series);
  return add_rn(mul_rn(s, series), mul_rn(static_cast<float>(n), 0.69314718f));
}

}  // namespace pf
