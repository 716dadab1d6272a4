#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/buffer.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/packed_matrix.h"

namespace pf {

struct CpuLayer {
  std::vector<float> attention_norm, ffn_norm;  // [E]
  std::vector<float> qkv_bias;                  // [(H + 2 G) D] or empty
  PackedMatrix qkv, o, gate_up, down;
};

// Weights as the kernels read them, and the memory that a forward pass writes. Letters as in
// README.
struct CpuModel {
  const CpuKernels* kernels = nullptr;
  int64_t L = 0, E = 0, F = 0, H = 0, G = 0, D = 0;
  int64_t V = 0;          // of the logits that sampling sees
  int64_t head_rows = 0;  // of the head: less than V for a reduced draft vocabulary
  int64_t sliding_window = 0;
  float epsilon = 0;
  RopeFrequencies rope;
  std::vector<CpuLayer> layers;
  std::vector<float> final_norm;  // [E]
  PackedMatrix head;
  std::vector<int32_t> head_tokens;  // head row -> token; empty: the same
  Buffer embedding;                  // bf16 or f32 [tokens, E]
  bool f32 = false;

  int64_t qkv_width() const { return (H + 2 * G) * D; }
};

// Fails where a tensor cannot be packed as asked.
Status pack_model(const Model& model, const Model* embedding_of, const CpuOptions& options,
                  ThreadPool& pool, CpuModel* out);

// Scratch for T rows. Names say what stands there while a layer runs.
struct CpuScratch {
  Buffer residual;    // f32 [T, E]
  Buffer qkv;         // f32 [T, (H + 2G) D]
  Buffer attended;    // f32 [T, H D]
  Buffer gate_up;     // f32 [T, 2 F]
  Buffer packed;      // activations of one product, packed for its matrix
  Buffer own_packed;  // [threads]: one row, packed by each thread for itself
  size_t own_packed_bytes = 0;
  Buffer row;                       // f32 [threads, max(E, F)]: one row on its way into `packed`
  Buffer hidden;                    // f32 [R, E]: final norm of the logit rows
  Buffer logits;                    // f32 [chunk, head rows]
  std::vector<float> cosine, sine;  // [T, D / 2]
};

// One forward pass up to `hidden`, all threads together.
class CpuForward {
 public:
  CpuForward(const CpuModel& model, const CpuOptions& options, ThreadPool& pool, KvPlane* plane);

  // Batch as in Backend::forward.
  void run(const Batch& batch);

  // Logits [n, head rows] of rows [first, first + n) of `hidden`; n <= head_chunk_rows.
  View<float, 2> logits(int32_t first, int32_t n);
  int64_t scratch_bytes() const;
  int64_t max_rows() const { return max_rows_; }

 private:
  void embed(const Batch& batch, Range rows);
  void prepare_rope(const Batch& batch, Range rows);
  void run_layer(const Batch& batch, int64_t layer, int thread);
  std::byte* packed(int64_t m, int thread) const;
  void product(const PackedMatrix& w, int64_t m, float* y, int64_t ldy, bool add, int which,
               int thread);
  void normalise(const std::vector<float>& weight, const PackedMatrix& next, Range rows, int64_t m,
                 int thread);
  void rotate_and_store(const Batch& batch, int64_t layer, Range rows);
  void finish(const Batch& batch, Range rows);

  const CpuModel& model_;
  const CpuOptions& options_;
  ThreadPool& pool_;
  KvPlane* plane_;
  int64_t max_rows_;  // a whole tree fits, however few rows a step may have
  Attention attention_;
  WorkShare shares_[2];
  CpuScratch s_;
};

}  // namespace pf
