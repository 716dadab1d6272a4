#pragma once

#include <algorithm>
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
  // A head over its target's hidden states: its row at slot j is made of token j and of the hidden
  // state of token j - 1, so slot 0 stays empty (and RoPE, which sees differences only, counts
  // slots).
  PackedMatrix fc;                                 // [E, 2 E]; n == 0: none
  std::vector<float> embedding_norm, hidden_norm;  // [E]
  std::vector<int32_t> head_tokens;                // head row -> token; empty: the same
  Buffer embedding;  // bf16 or f32 [tokens, E]; empty: the rows of the head, which are the same
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
  Buffer row;                       // f32 [threads, max(2 E, F)]: one row on its way into `packed`
  Buffer hidden;                    // f32 [R, E]: final norm of the logit rows
  Buffer kept;                      // f32 [T, E]: final norm of all rows, when they are kept
  Buffer logits;                    // f32 [chunk, head rows]
  std::vector<float> cosine, sine;  // [T, D / 2]
};

// One forward pass up to `hidden`, all threads together.
class CpuForward {
 public:
  CpuForward(const CpuModel& model, const CpuOptions& options, ThreadPool& pool, KvPlane* plane);

  // Batch as in Backend::forward. `features` [T] of [E]: for a head over hidden states.
  // `n_layers`: so many of the first; 0: all.
  void run(const Batch& batch, std::span<const float* const> features = {}, int64_t n_layers = 0);

  // Of the last run: hidden states behind the final norm, of a logit row and of any row.
  std::span<const float> logit_hidden(int32_t logit_row) const {
    return {s_.hidden.as<float>() + logit_row * model_.E, static_cast<size_t>(model_.E)};
  }
  std::span<const float> kept_hidden(int32_t row) const {
    return {s_.kept.as<float>() + row * model_.E, static_cast<size_t>(model_.E)};
  }

  // Logits [n, head rows] of rows [first, first + n) of `hidden`; n <= head_chunk_rows.
  View<float, 2> logits(int32_t first, int32_t n);
  int64_t scratch_bytes() const;
  int64_t max_rows() const { return max_rows_; }

 private:
  int64_t row_width() const { return std::max(2 * model_.E, model_.F); }
  void embed(const Batch& batch, Range rows);
  void mix(const Batch& batch, std::span<const float* const> features, int thread);
  void prepare_rope(const Batch& batch, Range rows);
  void run_layer(const Batch& batch, int64_t layer, int thread);
  std::byte* packed(int64_t m, int thread) const;
  void product(const PackedMatrix& w, int64_t m, float* y, int64_t ldy, bool add, int which,
               int thread);
  void normalise(const std::vector<float>& weight, const PackedMatrix& next, Range rows, int64_t m,
                 int thread);
  void rotate_and_store(const Batch& batch, int64_t layer, Range rows);
  void finish(const Batch& batch, int thread);

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
