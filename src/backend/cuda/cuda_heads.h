#pragma once

#include "backend/cuda/cuda_model.h"

namespace pf {

// Medusa heads on the device (model/model.h).
template <class A>
struct CudaHeadStack {
  struct Block {
    CudaMatrix<A> w;           // [E, E]
    DeviceBuffer<float> bias;  // [E]
  };
  struct Head {
    std::vector<Block> blocks;
    CudaMatrix<A> out;  // [V, E]
  };
  int64_t E = 0, V = 0;
  std::vector<Head> heads;
};

template <class A>
Status upload_heads(const Model& model, const CudaOptions& options, ThreadPool& pool,
                    CudaHeadStack<A>* out);

// As make_cpu_heads (backend/cpu/cpu_heads.h), over states of a target on the same device, on its
// stream.
Result<std::unique_ptr<Backend>> make_cuda_heads(const Model& model, const CudaOptions& options,
                                                 ThreadPool& pool);

}  // namespace pf
