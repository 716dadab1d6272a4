// A thread makes every n_threads-th number.
#include "base/cuda.h"
#include "device/fill.h"
#include "kernels/common/half.cuh"

namespace pf {
namespace {

constexpr int kThreads = 256, kBlocks = 1024;

// SplitMix64 (Steele et al. 2014).
__device__ uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// grid (any), block (kThreads)
template <class A>
__global__ void noise_kernel(A* to, int64_t n, uint64_t seed, float scale) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const float even = static_cast<float>(mix(seed ^ uint64_t(i)) >> 40) / (1 << 23) - 1.0f;
    to[i] = kernels::narrow<A>(scale * even);
  }
}

// grid (any), block (kThreads)
__global__ void bits_kernel(uint32_t* to, int64_t n, uint64_t seed) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step)
    to[i] = static_cast<uint32_t>(mix(seed ^ uint64_t(i)));
}

unsigned blocks_of(int64_t n) {
  const int64_t needed = (n + kThreads - 1) / kThreads;
  return static_cast<unsigned>(needed < kBlocks ? needed : kBlocks);
}

template <class A>
void fill(A* to, int64_t n, uint64_t seed, float scale, cudaStream_t stream) {
  if (n == 0) return;
  noise_kernel<<<blocks_of(n), kThreads, 0, stream>>>(to, n, seed << 40, scale);
  cuda_check(cudaGetLastError());
}

}  // namespace

void fill_noise(f16* to, int64_t n, uint64_t seed, float scale, cudaStream_t stream) {
  fill(to, n, seed, scale, stream);
}
void fill_noise(bf16* to, int64_t n, uint64_t seed, float scale, cudaStream_t stream) {
  fill(to, n, seed, scale, stream);
}
void fill_bits(uint32_t* to, int64_t n, uint64_t seed, cudaStream_t stream) {
  if (n == 0) return;
  bits_kernel<<<blocks_of(n), kThreads, 0, stream>>>(to, n, seed << 40);
  cuda_check(cudaGetLastError());
}

}  // namespace pf
