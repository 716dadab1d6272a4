// One fault per kernel: memory, launches, ends. `// BUG` stands on the line that the finding must
// name.
#include <cassert>

#include "ptxvm/ptxvm.h"
#include "ptxvm/samples/samples.h"

namespace {

__constant__ float table[4];

__global__ void past_end(float* y, int n) {
  int i = threadIdx.x;
  y[i + n - 31] = 1.0f;  // BUG
}
__global__ void before_start(float* y) {
  y[int(threadIdx.x) - 1] = 1.0f;  // BUG
}
__global__ void across_end(const float4* x, float4* y) {
  y[0] = x[1];  // BUG
}
__global__ void past_shared(float* y) {
  __shared__ float s[32];
  s[threadIdx.x] = 1.0f;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x + 1];  // BUG
}
__global__ void past_local(float* y, int n) {
  float mine[8];
  for (int i = 0; i < 8; ++i) mine[i] = y[i];
  y[0] = mine[n];  // BUG
}
__global__ void after_free(float* y) {
  y[threadIdx.x] = 1.0f;  // BUG
}
__global__ void null_pointer(float* y) {
  y[threadIdx.x] = 1.0f;  // BUG
}
__global__ void misaligned(float* y) {
  *reinterpret_cast<float2*>(y + 1) = make_float2(1, 2);  // BUG
}
__global__ void misaligned_matrix(unsigned* y) {
  __shared__ alignas(128) unsigned short s[512];
  for (int i = threadIdx.x; i < 512; i += 32) s[i] = i;
  __syncwarp();
  unsigned a = unsigned(__cvta_generic_to_shared(s)) + threadIdx.x * 8, r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(a));  // BUG
  y[threadIdx.x] = r;
}
__global__ void misaligned_copy(const float* x) {
  __shared__ float4 s[32];
  unsigned a = unsigned(__cvta_generic_to_shared(&s[threadIdx.x]));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(a), "l"(x + 1));  // BUG
  asm volatile("cp.async.wait_all;");
}
__global__ void writes_constant(float* t, float* y) {
  y[0] = table[0];
  t[threadIdx.x & 3] = 1.0f;  // BUG
}
struct Many {
  float v[4];
};
__global__ void writes_parameter(const __grid_constant__ Many m, float* y) {
  asm volatile("st.f32 [%0], %1;" ::"l"(&m.v[threadIdx.x & 3]), "f"(1.0f));  // BUG
  y[0] = m.v[threadIdx.x & 3];
}
__global__ void uninitialised(float* y) {
  __shared__ float s[64];
  if (threadIdx.x < 63) s[threadIdx.x] = 1.0f;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];  // BUG
}
__global__ void uninitialised_global(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x];  // BUG
}
__global__ void uninitialised_byte(const unsigned char* x, unsigned* y) {
  y[threadIdx.x] = reinterpret_cast<const unsigned*>(x)[threadIdx.x];  // BUG
}
__global__ void stale_cache(const float* x, float* y) {
  y[threadIdx.x] = 2.0f;
  __syncthreads();
  y[threadIdx.x] = __ldg(x + 31 - threadIdx.x);  // BUG
}
__global__ void endless(volatile int* y) {
  while (y[0] == 0) {  // BUG
  }
}
__global__ void __launch_bounds__(64) too_wide(float* y) { y[threadIdx.x] = 0; }
__global__ void big_shared(float* y) {
  extern __shared__ float s[];
  s[threadIdx.x] = 1;
  y[threadIdx.x] = s[threadIdx.x];
}
__global__ void static_and_dynamic(float* y) {
  __shared__ float t[1024];
  extern __shared__ float s[];
  t[threadIdx.x] = s[threadIdx.x] = 1;
  y[threadIdx.x] = s[threadIdx.x] + t[threadIdx.x];
}
__global__ void traps(const float* y) {
  if (y[0] == 0) __trap();  // BUG
}
__global__ void asserts(const float* y) {
  assert(y[threadIdx.x] == threadIdx.x);  // BUG
}
__global__ void strange_opcode(unsigned* y) {
  unsigned r;
  asm volatile("frobnicate.b32 %0, 5;" : "=r"(r));  // BUG
  y[0] = r;
}

template <class T = float>
T* fresh(size_t n) {
  void* p = nullptr;
  cudaMalloc(&p, n);
  return static_cast<T*>(p);
}
template <class T = float>
T* device(size_t n) {
  T* p = fresh<T>(n);
  cudaMemset(p, 0, n);
  return p;
}

}  // namespace

std::vector<Planted> planted_memory() {
  return {
      {"past_end", "out-of-bounds", [] { past_end<<<1, 32>>>(device(400), 101); }},
      {"before_start", "out-of-bounds", [] { before_start<<<1, 32>>>(device(400)); }},
      {"across_end", "out-of-bounds",
       [] { across_end<<<1, 1>>>(device<float4>(28), device<float4>(16)); }},
      {"past_shared", "out-of-bounds", [] { past_shared<<<1, 32>>>(device(128)); }},
      {"past_local", "out-of-bounds", [] { past_local<<<1, 1>>>(device(128), 9); }},
      {"after_free", "use-after-free",
       [] {
         float* p = device(128);
         cudaFree(p);
         after_free<<<1, 32>>>(p);
       }},
      {"null_pointer", "out-of-bounds", [] { null_pointer<<<1, 32>>>(nullptr); }},
      {"misaligned", "misaligned", [] { misaligned<<<1, 1>>>(device(128)); }},
      {"misaligned_matrix", "misaligned",
       [] { misaligned_matrix<<<1, 32>>>(device<unsigned>(128)); }},
      {"misaligned_copy", "misaligned", [] { misaligned_copy<<<1, 32>>>(device(1024)); }},
      {"writes_constant", "read-only-write",
       [] {
         void* t = nullptr;
         cudaGetSymbolAddress(&t, table);
         writes_constant<<<1, 1>>>(static_cast<float*>(t), device(4));
       }},
      {"writes_parameter", "read-only-write",
       [] {
         writes_parameter<<<1, 1>>>(Many{{1, 2, 3, 4}}, device(4));
       }},
      {"uninitialised", "uninitialised-read", [] { uninitialised<<<1, 64>>>(device(256)); }},
      {"uninitialised_global", "uninitialised-read",
       [] { uninitialised_global<<<1, 32>>>(fresh(128), fresh(128)); }},
      {"uninitialised_byte", "uninitialised-read",
       [] {
         auto* x = fresh<unsigned char>(128);
         cudaMemset(x, 1, 127);  // all but the last byte of the last word
         uninitialised_byte<<<1, 32>>>(x, fresh<unsigned>(128));
       }},
      {"stale_cache", "non-coherent-read",
       [] {
         float* p = device(128);
         stale_cache<<<1, 32>>>(p, p);
       }},
      {"endless", "step-limit",
       [] {
         pf::ptxvm::settings().max_steps = 10'000;
         endless<<<1, 32>>>(device<int>(4));
         cudaDeviceSynchronize();
         pf::ptxvm::settings().max_steps = pf::ptxvm::Settings{}.max_steps;
       }},
      {"too_wide", "launch-config", [] { too_wide<<<1, 128>>>(device(512)); }, false},
      {"empty_grid", "launch-config", [] { too_wide<<<dim3(0, 1, 1), 32>>>(device(512)); }, false},
      {"big_shared", "shared-memory-limit", [] { big_shared<<<1, 32, 64 << 10>>>(device(128)); },
       false},
      {"static_and_dynamic", "shared-memory-limit",
       [] {
         cudaFuncSetAttribute(static_and_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              163 << 10);
         static_and_dynamic<<<1, 32, 160 << 10>>>(device(128));
       },
       false},
      {"traps", "trap", [] { traps<<<1, 32>>>(device(4)); }},
      {"asserts", "assert", [] { asserts<<<1, 32>>>(device(128)); }},
      {"strange_opcode", "unsupported", [] { strange_opcode<<<1, 1>>>(device<unsigned>(4)); }},
  };
}
