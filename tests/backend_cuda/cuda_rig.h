#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cuda/cuda_backend.h"
#include "backend/tiny_model.h"
#include "base/dtype.h"
#include "model/quantize.h"
#include "ptxvm/ptxvm.h"

namespace pf {

// A shape that the CUDA kernels serve, 4-bit weights included.
inline TinyShape cuda_shape() {
  return {.width = 64, .ffn = 96, .heads = 4, .kv_heads = 2, .head_width = 64};
}

// A random model whose weights are rounded to bf16: then bf16 holds them exactly, and f16 all but
// the tiniest.
inline void round_to_bf16(const Model& m) {
  for (const Tensor* t : all_tensors(m)) {
    auto* v = reinterpret_cast<float*>(const_cast<std::byte*>(t->data.data()));
    for (int64_t i = 0; i < t->size(); ++i) v[i] = to_float(to_bf16(v[i]));
  }
}
inline Model bf16_model(const TinyShape& shape) {
  Model m = tiny_model(shape);
  round_to_bf16(m);
  return m;
}

// A model of 4-bit matrices in groups of 128, but for its head.
inline Model wide_int4_model(TensorType type, ThreadPool& pool) {
  TinyShape shape = cuda_shape();
  shape.width = shape.ffn = 128;
  return quantize_model(bf16_model(shape), {type, TensorType::kQ8_0, 128}, pool).take();
}

// A CUDA backend on the machine, and its rows' logits. Any finding of the machine fails the test.
struct CudaRig {
  explicit CudaRig(const Model& model, CudaOptions o = {}) : pool(1) {
    o.n_blocks = o.n_blocks > 0 ? o.n_blocks : 200;
    o.block_tokens = o.block_tokens == 16 ? 8 : o.block_tokens;
    o.max_rows = std::min(o.max_rows, 192);
    o.max_context = 1024;
    o.head_chunk_rows = o.head_chunk_rows == 65 ? 33 : o.head_chunk_rows;
    o.draft_top_n = 16;
    n_blocks = o.n_blocks;
    options = o;
    auto made = make_cuda_backend(model, nullptr, o, pool);
    EXPECT_TRUE(made.ok()) << made.status().message();
    backend = made.take();
    V = model.config.vocabulary_size;
  }
  ~CudaRig() {
    backend.reset();
    for (const auto& f : ptxvm::take_findings()) ADD_FAILURE() << ptxvm::to_text(f);
  }
  // Block ids in a scattered order, different for each table.
  std::vector<BlockId> table(int32_t n, int32_t first) const {
    std::vector<BlockId> t;
    for (int32_t i = 0; i < n; ++i) t.push_back((first + i * 7) % n_blocks);
    return t;
  }
  std::vector<std::vector<float>> logits(int32_t n) {
    std::vector<float> flat(static_cast<size_t>(n * V));
    backend->read_logits(0, n, {flat.data(), {n, V}});
    std::vector<std::vector<float>> rows;
    for (int32_t i = 0; i < n; ++i)
      rows.emplace_back(flat.begin() + i * V, flat.begin() + (i + 1) * V);
    return rows;
  }

  ThreadPool pool;
  CudaOptions options;
  std::unique_ptr<Backend> backend;
  int64_t V = 0;
  int32_t n_blocks = 0;
};

// The root mean square of the differences over that of the logits.
inline double relative_noise(const std::vector<std::vector<float>>& got,
                             const std::vector<std::vector<double>>& want) {
  double differences = 0, squares = 0;
  for (size_t p = 0; p < got.size(); ++p)
    for (size_t i = 0; i < got[p].size(); ++i) {
      differences += std::pow(static_cast<double>(got[p][i]) - want[p][i], 2);
      squares += want[p][i] * want[p][i];
    }
  return std::sqrt(differences / squares);
}

inline std::vector<int32_t> text_of(int32_t n, int32_t seed = 0) {
  std::vector<int32_t> t;
  for (int32_t i = 0; i < n; ++i) t.push_back((i * i * 31 + i * 7 + seed * 13) % 101);
  return t;
}

}  // namespace pf
