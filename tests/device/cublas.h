#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "base/dtype.h"

namespace pf {

// cuBLAS where the machine has it, looked up when the program runs: it is a measure, not a part.
class Cublas {
 public:
  static std::unique_ptr<Cublas> open(cudaStream_t stream);  // null: it is not there
  ~Cublas();

  // y [T, N] = x [T, K] w [N, K]^T, sums in float.
  void multiply(f16* y, const f16* x, const f16* w, int64_t T, int64_t N, int64_t K) const;

 private:
  Cublas() = default;
  void* library_ = nullptr;
  void* handle_ = nullptr;
  void* gemm_ = nullptr;
};

}  // namespace pf
