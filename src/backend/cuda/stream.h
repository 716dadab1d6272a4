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

// A place in a stream that others wait for, of the present device.
class CudaEvent {
 public:
  CudaEvent() { cuda_check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() { cuda_check(cudaEventDestroy(event_)); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace pf
