#pragma once

// Reductions over a block of 32, 64, 128, ... 1024 threads. Every thread calls and every thread
// gets the result. The order of a sum is fixed by the width of the block: a butterfly over the
// lanes, then one over the warps.

#include <cstdint>

namespace pf::kernels {

__device__ inline int n_warps() { return static_cast<int>(blockDim.x) / 32; }
__device__ inline int warp() { return static_cast<int>(threadIdx.x) / 32; }
__device__ inline int lane() { return static_cast<int>(threadIdx.x) % 32; }

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

template <class T, class Op>
__device__ T warp_reduce(T x, Op op) {
  for (int o = 16; o > 0; o /= 2) x = op(x, __shfl_xor_sync(~0u, x, o));
  return x;
}

// One value per warp, of_warp [32] in shared memory: written by the warps, then reduced. A barrier
// stands before the writing, so that whoever read of_warp before is done.
template <class T, class Op>
__device__ T reduce_warps(T x, Op op, T* of_warp) {
  __syncthreads();
  if (lane() == 0) of_warp[warp()] = x;
  __syncthreads();
  x = of_warp[lane() & (n_warps() - 1)];
#pragma unroll 1
  for (int o = n_warps() / 2; o > 0; o /= 2) x = op(x, __shfl_xor_sync(~0u, x, o));
  return x;
}

template <class T, class Op>
__device__ T block_reduce(T x, Op op) {
  __shared__ T of_warp[32];
  return reduce_warps(warp_reduce(x, op), op, of_warp);
}

__device__ inline double block_sum(double x) { return block_reduce(x, Sum{}); }
__device__ inline unsigned long long block_max(unsigned long long x) {
  return block_reduce(x, Max{});
}

// Inclusive sum over the lanes of a warp.
template <class T>
__device__ T warp_scan(T x) {
  for (int o = 1; o < 32; o *= 2) {
    const T before = __shfl_up_sync(~0u, x, o);
    if (lane() >= o) x += before;
  }
  return x;
}

// Inclusive sum over the threads of a block.
template <class T>
__device__ T block_scan(T x) {
  __shared__ T of_warp[32];
  x = warp_scan(x);
  __syncthreads();
  if (lane() == 31) of_warp[warp()] = x;
  __syncthreads();
  const T upto = warp_scan(lane() < n_warps() ? of_warp[lane()] : T{});
  const T before = __shfl_sync(~0u, upto, warp() > 0 ? warp() - 1 : 0);
  return warp() > 0 ? before + x : x;
}

}  // namespace pf::kernels
