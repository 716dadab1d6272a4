#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "model/tensor.h"

namespace pf {

// A weight matrix [N, K] in the tiles that the kernels read; several tensors with the same K may
// stand below each other (fused q, k, v; fused gate, up).
struct PackedMatrix {
  WeightFormat format = WeightFormat::kF32;
  int64_t n = 0, k = 0;
  int64_t n_tiles = 0, n_steps = 0;  // rows beyond n and columns beyond k are zero
  Buffer data;                       // [tiles][steps][step_bytes]

  int64_t tile_bytes() const { return n_steps * step_bytes(format); }
  int64_t bytes() const { return n_tiles * tile_bytes(); }
  bool is_float() const { return format == WeightFormat::kF32 || format == WeightFormat::kBf16; }

  // One row as floats [k]. Requires: is_float().
  void read_row(int64_t row, float* out) const;
};

// Packs in parallel. Q4_0 and Q4_1 tensors enter kInt4, and Q8_0 tensors kInt8, with the very
// numbers of the file; others are quantised from float. Refuses what cannot be quantised.
Result<PackedMatrix> pack_matrix(std::span<const Tensor* const> tensors, WeightFormat format,
                                 ThreadPool& pool);

// Bytes of m activation rows of K columns, packed in chunks for a matrix of this format.
inline int64_t packed_rows_bytes(WeightFormat format, int64_t n_steps, int64_t m) {
  return m * n_steps * row_step_bytes(format);
}

// One thread's part of y[m, n] = x[m, k] W[n, k]^T: the tiles that it takes from `share`, all rows
// of x. `y` has rows of `ldy` floats; with `add` the product is added to what stands there.
struct ProductArgs {
  const PackedMatrix* w;
  const std::byte* rows;  // m packed rows
  int64_t m;
  float* y;
  int64_t ldy;
  bool add = false;
};
void multiply(const CpuKernels& kernels, const ProductArgs& args, WorkShare* share, int thread);

// Packs row `row` of m into its chunk.
inline void pack_activation(const CpuKernels& kernels, const PackedMatrix& w, const float* x,
                            int64_t row, int64_t m, std::byte* rows) {
  int64_t width = chunk_rows(kernels, w.format, m), chunk = row / width * width;
  kernels.pack_row(w.format, x, w.k, w.n_steps, static_cast<int>(row - chunk),
                   static_cast<int>(std::min(m - chunk, width)),
                   rows + packed_rows_bytes(w.format, w.n_steps, chunk));
}

}  // namespace pf
