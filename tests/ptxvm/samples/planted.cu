// One fault per kernel. `// BUG` stands on the line that the finding must name.
#include "ptxvm/samples/samples.h"

namespace {

__global__ void past_end(float* y, int n) {
  int i = threadIdx.x;
  y[i + n - 31] = 1.0f;  // BUG
}
__global__ void no_barrier(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  s[threadIdx.x] += threadIdx.x;  // BUG
  y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void uninitialised(float* y) {
  __shared__ float s[64];
  if (threadIdx.x < 63) s[threadIdx.x] = 1.0f;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];  // BUG
}
__global__ void half_warp_shuffle(float* y) {
  float v = threadIdx.x;
  if (threadIdx.x < 16) v += __shfl_xor_sync(~0u, v, 1);  // BUG
  y[threadIdx.x] = v;
}
__global__ void block_race(float* y) {
  y[threadIdx.x] = blockIdx.x;  // BUG
}
__global__ void misaligned(float* y) {
  *reinterpret_cast<float2*>(y + 1) = make_float2(1, 2);  // BUG
}
__global__ void copy_in_flight(const float4* x, float4* y) {
  __shared__ float4 s[32];
  unsigned a = unsigned(__cvta_generic_to_shared(&s[threadIdx.x]));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n cp.async.commit_group;" ::"r"(a),
               "l"(x + threadIdx.x)
               : "memory");
  y[threadIdx.x] = s[threadIdx.x];  // BUG
}

float* device(size_t n) {
  void* p = nullptr;
  cudaMalloc(&p, n);
  cudaMemset(p, 0, n);
  return static_cast<float*>(p);
}

}  // namespace

const std::vector<Planted>& planted() {
  static const std::vector<Planted> kList = {
      {"past_end", "out-of-bounds", [] { past_end<<<1, 32>>>(device(400), 101); }},
      {"no_barrier", "shared-race", [] { no_barrier<<<1, 64>>>(device(256)); }},
      {"uninitialised", "uninitialised-read", [] { uninitialised<<<1, 64>>>(device(256)); }},
      {"half_warp_shuffle", "partial-warp", [] { half_warp_shuffle<<<1, 32>>>(device(128)); }},
      {"block_race", "global-race", [] { block_race<<<2, 32>>>(device(128)); }},
      {"misaligned", "misaligned", [] { misaligned<<<1, 1>>>(device(128)); }},
      {"copy_in_flight", "async-copy",
       [] {
         copy_in_flight<<<1, 32>>>(reinterpret_cast<float4*>(device(512)),
                                   reinterpret_cast<float4*>(device(512)));
       }},
  };
  return kList;
}
