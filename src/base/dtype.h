#pragma once

#include <bit>
#include <cstdint>

namespace pf {

// Storage-only 16-bit floats: arithmetic happens in float.
struct bf16 {
  uint16_t bits = 0;
};
struct f16 {
  uint16_t bits = 0;
};

inline float to_float(bf16 v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }

// Round to nearest, ties to even; NaN stays NaN.
inline bf16 to_bf16(float v) {
  uint32_t u = std::bit_cast<uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// IEEE binary16 <-> float in integer arithmetic: the same bits on every machine.
inline float to_float(f16 v) {
  uint32_t sign = static_cast<uint32_t>(v.bits & 0x8000u) << 16;
  uint32_t exponent = (v.bits >> 10) & 0x1fu, mantissa = v.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // subnormal: mantissa * 2^-24, exact in float
    float m = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(m) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

inline f16 to_f16(float v) {
  uint32_t u = std::bit_cast<uint32_t>(v);
  uint32_t sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};   // NaN
  if (u >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // rounds past 65504
  if (u < 0x38800000u) {                                                 // below 2^-14: subnormal
    float m =
        std::bit_cast<float>(u) + 0.5f;  // ulp of 0.5 is 2^-24: the addition does the rounding
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(m) - 0x3f000000u))};
  }
  u += 0xfffu + ((u >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((u - 0x38000000u) >> 13))};
}

}  // namespace pf
