#pragma once

#include <cuda_runtime_api.h>

#include <source_location>

#include "base/check.h"

namespace pf {

// A failed CUDA call is a bug or a dead device: it ends the process (serve.cc: exit 70).
inline void cuda_check(cudaError_t status,
                       std::source_location at = std::source_location::current()) {
  if (status != cudaSuccess) [[unlikely]]
    die(cudaGetErrorString(status), at);
}

}  // namespace pf
