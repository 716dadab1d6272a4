#pragma once

#include <cuda_runtime_api.h>

#include "base/cuda.h"

namespace pf {

// A stream of its own on the present device, or another one's, which outlives this.
class CudaStream {
 public:
  explicit CudaStream(void* other = nullptr) : owned_(other == nullptr) {
    if (owned_)
      cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    else
      stream_ = static_cast<cudaStream_t>(other);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() {
    cuda_check(cudaStreamSynchronize(stream_));
    if (owned_) cuda_check(cudaStreamDestroy(stream_));
  }
  cudaStream_t get() const { return stream_; }

 private:
  const bool owned_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace pf
