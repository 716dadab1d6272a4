#pragma once

#include <cstdint>

#include "base/philox.h"
#include "sampling/fast_math.h"

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

inline PhiloxBlock noise(NoiseKey key, int64_t position, Purpose purpose, uint32_t ordinal = 0,
                         uint32_t lane = 0) {
  return philox(key.seed, {lane, static_cast<uint32_t>(position),
                           static_cast<uint32_t>(purpose) | ordinal << 8, key.index});
}

// One number in (0, 1).
inline double noise_uniform(NoiseKey key, int64_t position, Purpose purpose, uint32_t ordinal = 0) {
  PhiloxBlock b = noise(key, position, purpose, ordinal);
  return uniform(b[0], b[1]);
}

// No Gumbel value exceeds this: uniform() stays 2^-24 below 1, and -log(2^-24) = 16.64.
inline constexpr float kMaxGumbel = 16.7f;

// Gumbel noise of one token at one position: -log(-log(u)). Four tokens share a Philox block.
inline float gumbel(NoiseKey key, int64_t position, int32_t token) {
  PhiloxBlock b = noise(key, position, Purpose::kGumbel, 0, static_cast<uint32_t>(token) / 4);
  return -log_positive(-log_positive(uniform(b[static_cast<uint32_t>(token) % 4])));
}

}  // namespace pf
