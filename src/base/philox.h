#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace pf {

struct PhiloxBlock {
  uint32_t words[4];

  PF_HOST_DEVICE constexpr uint32_t operator[](uint32_t i) const { return words[i]; }
  bool operator==(const PhiloxBlock&) const = default;
};

// Philox 4x32-10, a counter-based generator: randomness as a pure function of key and counter.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 5.
PF_HOST_DEVICE constexpr PhiloxBlock philox(uint64_t key, PhiloxBlock c) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// 32 random bits -> the open interval (0, 1): 23 bits plus a half, so neither end is reached and
// the value is exact in float.
PF_HOST_DEVICE constexpr float uniform(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5f) * 0x1p-23f;
}

// 64 random bits -> the open interval (0, 1) in double.
PF_HOST_DEVICE constexpr double uniform(uint32_t high, uint32_t low) {
  uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace pf
