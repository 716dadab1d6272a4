#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"

struct CUstream_st;  // what a cudaStream_t points to: this header is read without CUDA's, too

namespace pf {

// y[t,n] = [y[t,n] +] sum_k x[t,k] w[n,k], in an order of summation of the library's own choice.
struct BlasProduct {
  void* y = nullptr;        // float or x's type [T, N]
  const void* x = nullptr;  // f16 or bf16 [T, K]
  const void* w = nullptr;  // x's type [N, K]
  int64_t T = 0, N = 0, K = 0;
  bool bf16 = false, y_is_float = false, add = false;
};

// A library's product, for the rows of prompts only (--prefill-gemm): never inside a graph. Tests
// put one of their own here.
using Blas = std::function<void(const BlasProduct&, CUstream_st* stream)>;

// cuBLAS, found at run time, so that a program without it runs where the library is not: the error
// says what to install. The device is the present one.
Result<Blas> load_cublas();

// The same from the first of these files that is there.
Result<Blas> load_cublas_from(std::span<const char* const> names);

inline constexpr int64_t kBlasWorkspaceBytes = 32 << 20;  // as cuBLAS advises for sm_90

}  // namespace pf
