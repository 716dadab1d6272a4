#pragma once

#include <cuda_runtime.h>

#include <numbers>

namespace pf::kernels {

// factor (cos, sin)(position * inverse), as rope_kv_write.h says.
__device__ inline float2 rope_angle(int32_t position, float inverse, float factor) {
  double sine, cosine;
  sincospi(double(position) * double(inverse) * (1 / std::numbers::pi), &sine, &cosine);
  return make_float2(float(cosine) * factor, float(sine) * factor);
}

}  // namespace pf::kernels
