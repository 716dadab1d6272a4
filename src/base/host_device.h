#pragma once

// Pure functions that the host and the kernels share, to the bit. A function marked PF_HOST_DEVICE
// is compiled for both; its float arithmetic goes through the operations below where a product
// feeds a sum, because nvcc would fuse the two into one rounding. The host never does
// (-ffp-contract=off).
#ifdef __CUDACC__
#define PF_HOST_DEVICE __host__ __device__
#else
#define PF_HOST_DEVICE
#endif

namespace pf {

#ifdef __CUDA_ARCH__
PF_HOST_DEVICE inline float add_rn(float a, float b) { return __fadd_rn(a, b); }
PF_HOST_DEVICE inline float sub_rn(float a, float b) { return __fsub_rn(a, b); }
PF_HOST_DEVICE inline float mul_rn(float a, float b) { return __fmul_rn(a, b); }
PF_HOST_DEVICE inline float div_rn(float a, float b) { return __fdiv_rn(a, b); }
#else
PF_HOST_DEVICE inline float add_rn(float a, float b) { return a + b; }
PF_HOST_DEVICE inline float sub_rn(float a, float b) { return a - b; }
PF_HOST_DEVICE inline float mul_rn(float a, float b) { return a * b; }
PF_HOST_DEVICE inline float div_rn(float a, float b) { return a / b; }
#endif

}  // namespace pf
