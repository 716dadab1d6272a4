// The shared functions of base/noise.h and base/fast_math.h, called by a kernel one by one.
#include "base/cuda.h"
#include "base/noise.h"
#include "kernels/noise_bits.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;

// grid (ceil(n / kThreads)), block (kThreads)
template <class Out, class F>
__global__ void __launch_bounds__(kThreads) map_kernel(Out* out,  // [n]
                                                       int n, F f) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = f(i);
}

template <class Out, class F>
void map(Out* out, int n, F f) {
  map_kernel<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads>>>(out, n, f);
  cuda_check(cudaGetLastError());
}

struct Exp {
  const uint32_t* bits;
  __device__ float operator()(int i) const { return exp_nonpositive(__uint_as_float(bits[i])); }
};
struct Log {
  const uint32_t* bits;
  __device__ float operator()(int i) const { return log_positive(__uint_as_float(bits[i])); }
};
__device__ NoiseKey key_of(uint64_t seed, int i) {
  return {seed + static_cast<uint64_t>(i), static_cast<uint32_t>(i % 5)};
}
struct Gumbel {
  uint64_t seed;
  __device__ float operator()(int i) const { return gumbel(key_of(seed, i), 3 * i, 7 * i); }
};
struct Uniform {
  uint64_t seed;
  __device__ double operator()(int i) const {
    return noise_uniform(key_of(seed, i), 3 * i, Purpose::kAccept, static_cast<uint32_t>(i % 64));
  }
};

}  // namespace

void exp_of_bits(float* out, const uint32_t* bits, int n) { map(out, n, Exp{bits}); }
void log_of_bits(float* out, const uint32_t* bits, int n) { map(out, n, Log{bits}); }
void gumbel_of(float* out, uint64_t seed, int n) { map(out, n, Gumbel{seed}); }
void uniform_of(double* out, uint64_t seed, int n) { map(out, n, Uniform{seed}); }

}  // namespace pf::kernels
