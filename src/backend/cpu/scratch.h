#pragma once

#include <cstddef>
#include <span>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/packed_matrix.h"
#include "backend/footprint.h"

namespace pf {

// kInt4 stands for both: of a width that has groups of 128, rows of activations in groups of 32
// take more room.
WeightFormat format_of(CpuOptions::Weights weights);

// These tensors, of one width, as one packed matrix. int4_group: ModelConfig's of their file.
struct PackedShape {
  WeightFormat format;
  int64_t n = 0, k = 0;
  int64_t bytes() const { return packed_matrix_bytes(format, n, k); }
};
PackedShape packed_shape_of(std::span<const Tensor* const> tensors, CpuOptions::Weights weights,
                            int int4_group);

// Bytes of a model's packed matrices: the one stretch of memory in which they stand.
int64_t cpu_matrix_bytes(const Model& model, const Model* embedding_of,
                         CpuOptions::Weights weights);

// Bytes of the buffers of a forward pass (CpuScratch has their meaning). `own_packed` is one
// thread's; `total` has all threads' and attention's.
struct CpuScratchBytes {
  size_t residual = 0, qkv = 0, attended = 0, gate_up = 0, packed = 0, own_packed = 0, row = 0,
         hidden = 0, kept = 0, joined = 0, fused = 0, own = 0, logits = 0, angles = 0, total = 0;
};
CpuScratchBytes cpu_scratch_bytes(const ModelShape& model, const CpuOptions& options,
                                  int n_threads);

}  // namespace pf
