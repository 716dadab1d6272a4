#pragma once

#include <cstdint>

#include "base/fast_math.h"
#include "base/philox.h"

namespace pf {

// Randomness as a function of (seed, index within n, absolute position, purpose, ordinal): a
// token's draw depends on nothing else, neither on neighbours nor on how it came to be computed.
struct NoiseKey {
  uint64_t seed = 0;
  uint32_t index = 0;  // which of the n completions
};

enum class Purpose : uint32_t {
  kToken = 1,     // drawing from the target's distribution
  kAccept = 2,    // the coin of a drafted token; ordinal = its place among its siblings
  kResidual = 3,  // drawing from what is left after rejections
  kGumbel = 4,    // the noise that coupled drawing adds to log p and log q; one value per token
  kDraft = 5,     // drawing a draft token; ordinal = its place among its siblings
};

PF_HOST_DEVICE inline PhiloxBlock noise(NoiseKey key, int64_t position, Purpose purpose,
                                        uint32_t ordinal = 0, uint32_t lane = 0) {
  return philox(key.seed, {lane, static_cast<uint32_t>(position),
                           static_cast<uint32_t>(purpose) | ordinal << 8, key.index});
}

// One number in (0, 1).
PF_HOST_DEVICE inline double noise_uniform(NoiseKey key, int64_t position, Purpose purpose,
                                           uint32_t ordinal = 0) {
  PhiloxBlock b = noise(key, position, purpose, ordinal);
  return uniform(b[0], b[1]);
}

// No Gumbel value exceeds this: uniform() stays 2^-24 below 1, and -log(2^-24) = 16.64.
inline constexpr float kMaxGumbel = 16.7f;

// Gumbel noise of one token at one position: -log(-log(u)). Four tokens share a Philox block.
PF_HOST_DEVICE inline float gumbel(NoiseKey key, int64_t position, int32_t token) {
  uint32_t at = static_cast<uint32_t>(token), place = at % 4;
  PhiloxBlock b = noise(key, position, Purpose::kGumbel, 0, at / 4);
  // Chosen, not indexed: a device keeps the block in registers.
  uint32_t bits = place < 2 ? (place == 0 ? b[0] : b[1]) : (place == 2 ? b[2] : b[3]);
  return -log_positive(-log_positive(uniform(bits)));
}

}  // namespace pf
