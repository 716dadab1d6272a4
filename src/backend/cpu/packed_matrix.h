#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "base/progress.h"
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
  std::byte* data = nullptr;         // [tiles][steps][step_bytes], aligned to 64
  Buffer own;                        // of a matrix that was not packed into others' memory

  int64_t tile_bytes() const { return n_steps * step_bytes(format); }
  int64_t bytes() const { return n_tiles * tile_bytes(); }
  bool is_float() const { return pf::is_float(format); }

  // One row as floats [k]. Requires: is_float().
  void read_row(int64_t row, float* out) const;
};

inline int64_t n_steps_of(WeightFormat format, int64_t k) {
  return (k + step_width(format) - 1) / step_width(format);
}
// The room of a packed matrix [n, k]: the next one can begin behind it.
inline int64_t packed_matrix_bytes(WeightFormat format, int64_t n, int64_t k) {
  int64_t bytes = (n + kTileRows - 1) / kTileRows * n_steps_of(format, k) * step_bytes(format);
  return (bytes + 63) / 64 * 64;
}

// Packs in parallel. Q4_0 and Q4_1 tensors enter kInt4, and Q8_0 tensors kInt8, with the very
// numbers of the file; others are quantised from float. Refuses what cannot be quantised, and
// groups of 128 whose blocks have different scales. Requires of kInt4Wide: what int4_group_of asks
// of 128. `into`: packed_matrix_bytes of zeroed room, aligned to 64, that outlive the matrix; null:
// it takes memory of its own. `progress` counts the bytes of the tensors that are read.
Result<PackedMatrix> pack_matrix(std::span<const Tensor* const> tensors, WeightFormat format,
                                 ThreadPool& pool, std::byte* into = nullptr,
                                 Progress* progress = nullptr);

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

// Packs steps [steps.begin, steps.end) of row `row` of m into its chunk; x is the whole row.
inline void pack_activation(const CpuKernels& kernels, const PackedMatrix& w, const float* x,
                            int64_t row, int64_t m, Range steps, std::byte* rows) {
  if (steps.begin >= steps.end) return;
  int64_t width = chunk_rows(kernels, w.format, m), chunk = row / width * width;
  int64_t M = std::min(m - chunk, width), first = steps.begin * step_width(w.format);
  kernels.pack_row(w.format, x + first, std::min(w.k, steps.end * step_width(w.format)) - first,
                   steps.end - steps.begin, static_cast<int>(row - chunk), static_cast<int>(M),
                   rows + packed_rows_bytes(w.format, w.n_steps, chunk) +
                       steps.begin * M * row_step_bytes(w.format));
}
inline void pack_activation(const CpuKernels& kernels, const PackedMatrix& w, const float* x,
                            int64_t row, int64_t m, std::byte* rows) {
  pack_activation(kernels, w, x, row, m, Range{0, w.n_steps}, rows);
}

}  // namespace pf
