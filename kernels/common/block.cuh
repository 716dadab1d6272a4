#pragma once

// Reductions over a block whose width is a multiple of 32. Every thread calls and every thread gets
// the result. The order of a sum is fixed by the width of the block: lanes in a butterfly, then the
// warps from 0 upward.

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

template <class T, class Op>
__device__ T block_reduce(T x, Op op) {
  __shared__ T of_warp[32];
  x = warp_reduce(x, op);
  __syncthreads();  // whoever read of_warp before is done
  if (lane() == 0) of_warp[warp()] = x;
  __syncthreads();
  T all = of_warp[0];
  for (int w = 1; w < n_warps(); ++w) all = op(all, of_warp[w]);
  return all;
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
  T before = 0;
  for (int w = 0; w < warp(); ++w) before += of_warp[w];
  return before + x;
}

}  // namespace pf::kernels
