#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pf {

struct CudaDeviceFacts {
  std::string name;
  int32_t major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;
};

// What this process sees of CUDA. Without a device: none, and why.
struct CudaFacts {
  std::vector<CudaDeviceFacts> devices;
  std::string why_none;
  int32_t driver = 0, runtime = 0;  // CUDA versions, 1000 major + 10 minor; 0: there is none
};

CudaFacts cuda_facts();

}  // namespace pf
