// Stands in for the CUDA backend where no CUDA toolkit was there at build time.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_facts.h"

namespace pf {

int32_t n_cuda_devices(std::string* why_none) {
  if (why_none) *why_none = "this build has no CUDA backend (no CUDA toolkit was found)";
  return 0;
}

CudaFacts cuda_facts() {
  CudaFacts facts;
  n_cuda_devices(&facts.why_none);
  return facts;
}

Status check_cuda_devices(int32_t) {
  return Status(Code::kUnavailable, "this build has no CUDA backend");
}

int64_t cuda_free_bytes(int32_t) { return 0; }

Result<std::unique_ptr<Backend>> make_cuda_backend(const Model&, const Model*, const CudaOptions&,
                                                   ThreadPool&) {
  return Status(Code::kUnavailable, "this build has no CUDA backend");
}

}  // namespace pf
