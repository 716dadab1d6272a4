// One fault per kernel: who waits for whom. `// BUG` stands on the line that the finding must name;
// of a race on both sides, since the order of the warps decides which of them comes second.
#include "ptxvm/samples/samples.h"

namespace {

__device__ unsigned shared_address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

// --- races ---
__global__ void no_barrier(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  s[threadIdx.x] += threadIdx.x;         // BUG
  y[threadIdx.x] = s[63 - threadIdx.x];  // BUG
}
__global__ void reused_too_early(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  float v = s[63 - threadIdx.x];  // BUG
  s[threadIdx.x] = v + 1;         // BUG
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
__global__ void no_warp_barrier(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = y[threadIdx.x];       // BUG
  y[threadIdx.x] = s[31 - threadIdx.x];  // BUG
}
__global__ void one_word(int* y) {
  __shared__ int s;
  s = threadIdx.x;  // BUG
  __syncthreads();
  y[threadIdx.x] = s;
}
__global__ void global_neighbour(float* y) {
  y[threadIdx.x] = 1.0f;  // BUG
  __syncwarp();
  y[64 + threadIdx.x] = y[63 - threadIdx.x];  // BUG
}
__global__ void block_race(float* y) {
  y[threadIdx.x] = blockIdx.x;  // BUG
}
__global__ void reads_other_block(float* y) {
  float v = blockIdx.x == 0 ? 0 : y[threadIdx.x];  // BUG
  y[32 * blockIdx.x + threadIdx.x] = v + 1;        // BUG
}
__global__ void plain_beside_atomic(int* y) {
  if (threadIdx.x < 32)
    atomicAdd(y, 1);  // BUG
  else if (threadIdx.x == 32)
    y[0] = 5;  // BUG
}
// The last block sums, but the others have not fenced.
__global__ void no_fence(float* part, int* count, float* y) {
  if (threadIdx.x == 0) {
    part[blockIdx.x] = blockIdx.x + 1;
    if (atomicAdd(count, 1) == int(gridDim.x) - 1) {
      float sum = 0;
      for (int b = 0; b < int(gridDim.x); ++b) sum += part[b];  // BUG
      y[0] = sum;
    }
  }
}

// --- barriers ---
__global__ void half_warp_barrier(float* y) {
  if (threadIdx.x < 16) __syncthreads();  // BUG
  y[threadIdx.x] = 1;
}
__global__ void two_barriers(float* y) {
  if (threadIdx.x < 32) {
    y[threadIdx.x] = 1;
    __syncthreads();  // BUG
    y[threadIdx.x] += 1;
  } else {
    __syncthreads();  // BUG
    y[threadIdx.x] = 3;
  }
}
__global__ void left_early(float* y) {
  if (threadIdx.x >= 32) return;
  __syncthreads();  // BUG
  y[threadIdx.x] = 1;
}
__global__ void lane_left_early(float* y) {
  if (threadIdx.x == 31) return;
  __syncthreads();  // BUG
  y[threadIdx.x] = 1;
}
__global__ void never_complete(float* y) {
  asm volatile("bar.sync 1, 96;");  // BUG
  y[threadIdx.x] = 1;
}

// --- warps ---
__global__ void half_warp_shuffle(float* y) {
  float v = threadIdx.x;
  if (threadIdx.x < 16) v += __shfl_xor_sync(~0u, v, 1);  // BUG
  y[threadIdx.x] = v;
}
__global__ void shuffle_from_absent(float* y) {
  float v = threadIdx.x;
  v += __shfl_down_sync(~0u, v, 1);  // BUG
  y[threadIdx.x] = v;
}
__global__ void not_in_own_mask(unsigned* y) {
  y[threadIdx.x] = __ballot_sync(0x7fffffffu, threadIdx.x & 1);  // BUG
}
__global__ void half_warp_mma(float* y) {
  unsigned a = 0, b = 0;
  float d[4] = {};
  if (threadIdx.x & 1)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4}, {%5}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a), "r"(b));  // BUG
  y[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
__global__ void half_warp_matrix(unsigned* y) {
  __shared__ alignas(128) unsigned short s[64];
  s[threadIdx.x] = s[threadIdx.x + 32] = 1;
  __syncwarp();
  unsigned r = 0, a = shared_address(s) + (threadIdx.x & 7) * 16;
  if (threadIdx.x < 8)  // the addresses of x1, but all lanes must call
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(a));  // BUG
  y[threadIdx.x] = r;
}

// --- cp.async ---
__device__ void copy16(void* s, const void* g) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(s)), "l"(g)
               : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__global__ void copy_in_flight(const float4* x, float4* y) {
  __shared__ float4 s[32];
  copy16(&s[threadIdx.x], x + threadIdx.x);
  commit();
  y[threadIdx.x] = s[threadIdx.x];  // BUG
}
__global__ void weak_wait(const float4* x, float4* y) {
  __shared__ float4 s[64];
  copy16(&s[threadIdx.x], x + threadIdx.x);
  commit();
  copy16(&s[32 + threadIdx.x], x + threadIdx.x);
  commit();
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  float4 first = s[threadIdx.x];
  float4 second = s[32 + threadIdx.x];  // BUG
  y[threadIdx.x] = make_float4(first.x, second.x, first.z, second.w);
}
__global__ void wait_without_barrier(const float4* x, float4* y) {
  __shared__ float4 s[64];
  s[threadIdx.x] = make_float4(0, 0, 0, 0);
  __syncthreads();
  unsigned a = shared_address(&s[threadIdx.x]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(a), "l"(x + threadIdx.x));  // BUG
  asm volatile("cp.async.wait_all;" ::: "memory");
  y[threadIdx.x] = s[63 - threadIdx.x];  // BUG
}
__global__ void overwrites_flight(const float4* x) {
  __shared__ float4 s[32];
  copy16(&s[threadIdx.x], x + threadIdx.x);
  commit();
  s[threadIdx.x] = make_float4(0, 0, 0, 0);  // BUG
  asm volatile("cp.async.wait_all;" ::: "memory");
}
// A ring of one stage: the next copy starts while others still read the stage.
__global__ void stage_reused(const float4* x, float4* y) {
  __shared__ float4 s[64];
  unsigned a = shared_address(&s[threadIdx.x]);
  for (int i = 0; i < 2; ++i) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(a),
                 "l"(x + threadIdx.x));  // BUG
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    y[64 * i + threadIdx.x] = s[63 - threadIdx.x];  // BUG
  }
}
__global__ void exits_in_flight(const float4* x) {
  __shared__ float4 s[32];
  copy16(&s[threadIdx.x], x + threadIdx.x);
  commit();
}  // BUG

template <class T>
T* device(size_t n) {
  void* p = nullptr;
  cudaMalloc(&p, n);
  cudaMemset(p, 0, n);
  return static_cast<T*>(p);
}
template <class T>
T* device() {
  return device<T>(4096);
}

}  // namespace

std::vector<Planted> planted_order() {
  using f4 = float4;
  return {
      {"no_barrier", "shared-race", [] { no_barrier<<<1, 64>>>(device<float>()); }},
      {"reused_too_early", "shared-race", [] { reused_too_early<<<1, 64>>>(device<float>()); }},
      {"no_warp_barrier", "shared-race", [] { no_warp_barrier<<<1, 32>>>(device<float>()); }},
      {"one_word", "shared-race", [] { one_word<<<1, 64>>>(device<int>()); }},
      {"global_neighbour", "global-race", [] { global_neighbour<<<1, 64>>>(device<float>()); }},
      {"block_race", "global-race", [] { block_race<<<2, 32>>>(device<float>()); }},
      {"reads_other_block", "global-race", [] { reads_other_block<<<2, 32>>>(device<float>()); }},
      {"plain_beside_atomic", "global-race", [] { plain_beside_atomic<<<1, 64>>>(device<int>()); }},
      {"no_fence", "global-race",
       [] { no_fence<<<4, 32>>>(device<float>(), device<int>(), device<float>()); }},
      {"half_warp_barrier", "divergent-barrier",
       [] { half_warp_barrier<<<1, 32>>>(device<float>()); }},
      {"two_barriers", "divergent-barrier", [] { two_barriers<<<1, 64>>>(device<float>()); }},
      {"left_early", "divergent-barrier", [] { left_early<<<1, 64>>>(device<float>()); }},
      {"lane_left_early", "divergent-barrier", [] { lane_left_early<<<1, 32>>>(device<float>()); }},
      {"never_complete", "deadlock", [] { never_complete<<<1, 64>>>(device<float>()); }},
      {"half_warp_shuffle", "partial-warp", [] { half_warp_shuffle<<<1, 32>>>(device<float>()); }},
      {"shuffle_from_absent", "partial-warp",
       [] { shuffle_from_absent<<<1, 20>>>(device<float>()); }},
      {"not_in_own_mask", "partial-warp", [] { not_in_own_mask<<<1, 32>>>(device<unsigned>()); }},
      {"half_warp_mma", "partial-warp", [] { half_warp_mma<<<1, 32>>>(device<float>()); }},
      {"half_warp_matrix", "partial-warp", [] { half_warp_matrix<<<1, 32>>>(device<unsigned>()); }},
      {"copy_in_flight", "async-copy",
       [] { copy_in_flight<<<1, 32>>>(device<f4>(), device<f4>()); }},
      {"weak_wait", "async-copy", [] { weak_wait<<<1, 32>>>(device<f4>(), device<f4>()); }},
      {"wait_without_barrier", "shared-race",
       [] { wait_without_barrier<<<1, 64>>>(device<f4>(), device<f4>()); }},
      {"overwrites_flight", "async-copy", [] { overwrites_flight<<<1, 32>>>(device<f4>()); }},
      {"stage_reused", "shared-race", [] { stage_reused<<<1, 64>>>(device<f4>(), device<f4>()); }},
      {"exits_in_flight", "async-copy", [] { exits_in_flight<<<1, 32>>>(device<f4>()); }},
  };
}
