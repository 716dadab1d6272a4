#include "backend/cuda/cuda_facts.h"

#include "backend/cuda/cuda_backend.h"
#include "base/cuda.h"

namespace pf {

CudaFacts cuda_facts() {
  CudaFacts facts;
  int n = n_cuda_devices(&facts.why_none);
  cuda_check(cudaRuntimeGetVersion(&facts.runtime));
  if (cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
  if (facts.driver == 0) facts.why_none = "no NVIDIA driver is installed";
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp p{};
    cuda_check(cudaGetDeviceProperties(&p, i));
    facts.devices.push_back({p.name, p.major, p.minor, static_cast<int64_t>(p.totalGlobalMem)});
  }
  return facts;
}

}  // namespace pf
