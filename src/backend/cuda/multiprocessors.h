#pragma once

#include "base/cuda.h"
#include "kernels/attention_blocks.h"

namespace pf {

// Of the present device.
inline kernels::Multiprocessors multiprocessors() {
  int device = 0, n = 0, shared_bytes = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device));
  cuda_check(
      cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
  return {n, shared_bytes};
}

}  // namespace pf
