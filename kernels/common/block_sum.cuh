#pragma once

namespace pf::kernels {

// The sum over the block, in an order that depends on nothing but its size; the same in every
// thread. Once per kernel: it does not wait at its end.
template <int kThreads>
__device__ float block_sum(float x) {
  __shared__ float of_warp[kThreads / 32];
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (float s : of_warp) sum += s;
  return sum;
}

}  // namespace pf::kernels
