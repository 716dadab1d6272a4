#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace pf {

// Noise made where it is needed, a function of the seed and the place alone.
//   to  A [n]       even in [-scale, scale]
void fill_noise(f16* to, int64_t n, uint64_t seed, float scale, cudaStream_t stream);
void fill_noise(bf16* to, int64_t n, uint64_t seed, float scale, cudaStream_t stream);
//   to  uint32 [n]  any bits
void fill_bits(uint32_t* to, int64_t n, uint64_t seed, cudaStream_t stream);

}  // namespace pf
