#pragma once

#include <cstdint>

namespace pf::kernels {

// Device arrays of n; one value per argument. bits[i] is an argument's float.
void exp_of_bits(float* out, const uint32_t* bits, int n);
void log_of_bits(float* out, const uint32_t* bits, int n);
// Of the noise key {seed + i, i % 5} at position 3 i, token 7 i.
void gumbel_of(float* out, uint64_t seed, int n);
void uniform_of(double* out, uint64_t seed, int n);

}  // namespace pf::kernels
