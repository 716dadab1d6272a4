#pragma once

#include <cstddef>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/footprint.h"

namespace pf {

WeightFormat format_of(CpuOptions::Weights weights);

// Bytes of a model's packed matrices: the one stretch of memory in which they stand.
int64_t cpu_matrix_bytes(const ModelShape& model, WeightFormat format);

// Bytes of the buffers of a forward pass (CpuScratch has their meaning). `own_packed` is one
// thread's; `total` has all threads' and attention's.
struct CpuScratchBytes {
  size_t residual = 0, qkv = 0, attended = 0, gate_up = 0, packed = 0, own_packed = 0, row = 0,
         hidden = 0, kept = 0, joined = 0, fused = 0, own = 0, logits = 0, angles = 0, total = 0;
};
CpuScratchBytes cpu_scratch_bytes(const ModelShape& model, const CpuOptions& options,
                                  int n_threads);

}  // namespace pf
