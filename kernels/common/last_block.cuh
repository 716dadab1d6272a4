#pragma once

// Work that waits for all blocks, done by whichever comes last: a launch less, and no block waits
// for another.

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/half.cuh"

namespace pf::kernels {

// Whether this block is the last of n to come here; every thread calls and gets it. Then what the
// others wrote before they came is there for load_fresh_pack (a plain load may find what the L1
// still has). `counter` is 0 before the first and after the last.
__device__ inline bool is_last_block(uint32_t* counter, uint32_t n) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicInc(counter, n - 1) == n - 1;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

// From the L2.
__device__ inline Pack<float, 4> load_fresh_pack(const float* from) {
  const float4 v = __ldcg(reinterpret_cast<const float4*>(from));
  return {v.x, v.y, v.z, v.w};
}

}  // namespace pf::kernels
