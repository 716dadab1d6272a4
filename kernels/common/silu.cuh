#pragma once

namespace pf::kernels {

// g / (1 + exp(-g)) * u
__device__ inline float silu_times(float g, float u) { return g / (1 + __expf(-g)) * u; }

}  // namespace pf::kernels
