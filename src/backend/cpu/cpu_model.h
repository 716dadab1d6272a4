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
#include "backend/cpu/scratch.h"

namespace pf {

struct CpuLayer {
  std::vector<float> attention_norm, ffn_norm;  // [E]; the first may be empty: no norm
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
  // Holds all matrices, behind each other in the order in which a step reads them: one stream
  // through memory, whose small matrices lie on large pages too.
  Buffer matrices;
  std::vector<CpuLayer> layers;
  std::vector<float> final_norm;  // [E], or empty: no norm
  PackedMatrix head;
  // A head over its target's hidden states (model/model.h): its row at slot j is made of token j
  // and of the hidden state of token j - 1, so slot 0 stays empty (and RoPE, which sees differences
  // only, counts slots).
  HeadKind head_kind = HeadKind::kNone;
  PackedMatrix fc;                                 // [E, 2 E] or [E, hidden width]
  std::vector<float> fc_bias;                      // [E] or empty
  std::vector<float> embedding_norm, hidden_norm;  // [E], or empty: no norm
  std::vector<int32_t> head_tokens;                // head row -> token; empty: the same
  Buffer embedding;  // bf16 or f32 [tokens, E]; empty: the rows of the head, which are the same
  bool f32 = false;

  int64_t qkv_width() const { return (H + 2 * G) * D; }
  bool takes_hidden() const { return head_kind != HeadKind::kNone; }
  bool reads_wide(int64_t layer) const { return layer == 0 && head_kind == HeadKind::kEagle3; }
  ModelShape shape() const {
    ModelShape s{L, E, F, H, G, D};
    s.head_rows = head_rows;
    s.head_kind = head_kind;
    s.hidden_width = head_kind == HeadKind::kEagle3 ? fc.k : takes_hidden() ? E : 0;
    return s;
  }
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
  Buffer kept;                      // f32 [T, states E]: hidden states of all rows, where kept
  Buffer joined;                    // an EAGLE-3 head's: f32 [T, 2 E], what its first layer reads
  Buffer fused;                     // and f32 [T, E]: fc times the target's states, as they come
  Buffer own;                       // and f32 [R, E]: residual stream of the logit rows
  Buffer logits;                    // f32 [chunk, head rows]
  std::vector<float> cosine, sine;  // [T, D / 2]
};

// One forward pass up to `hidden`, all threads together.
class CpuForward {
 public:
  CpuForward(const CpuModel& model, const CpuOptions& options, ThreadPool& pool, KvPlane* plane);

  // The hidden state that a row of a head is made with.
  struct Feature {
    const float* state = nullptr;  // [E], or [hidden width] where fc comes first
    bool needs_fc = false;
  };
  // Batch as in Backend::forward. `features` [T]: for a head over hidden states. `n_layers`: so
  // many of the first; 0: all.
  void run(const Batch& batch, std::span<const Feature> features = {}, int64_t n_layers = 0);

  // Of the last run: what a head said of a logit row; the hidden states of all rows.
  const float* own_state(int32_t logit_row) const {
    const Buffer& states = model_.head_kind == HeadKind::kEagle3 ? s_.own : s_.hidden;
    return states.as<float>() + logit_row * model_.E;
  }
  HiddenStates kept_states() const { return {s_.kept.as(), max_rows_, kept_width()}; }

  // Logits [n, head rows] of rows [first, first + n) of `hidden`; n <= head_chunk_rows.
  View<float, 2> logits(int32_t first, int32_t n);
  int64_t scratch_bytes() const;
  int64_t max_rows() const { return max_rows_; }

 private:
  int64_t row_width() const { return std::max(2 * model_.E, model_.F); }
  int64_t kept_width() const {
    return model_.E * std::max<int64_t>(1, static_cast<int64_t>(options_.tap_layers.size()));
  }
  void keep_tap(int64_t layer, Range rows);
  void norm_or_copy(const std::vector<float>& weight, const float* x, float* y) const;
  void add_fc_bias(float* y, Range rows) const;
  void embed(const Batch& batch, Range rows);
  void mix(const Batch& batch, std::span<const Feature> features, int thread);
  void mix_into_attention(const Batch& batch, std::span<const Feature> features, int thread);
  void prepare_rope(const Batch& batch, Range rows);
  void run_layer(const Batch& batch, int64_t layer, int thread);
  std::byte* packed(int64_t m, int thread) const;
  struct Part {
    Range rows, steps;
  };
  Part part_of(const PackedMatrix& w, int64_t m, int thread) const;
  void product(const PackedMatrix& w, int64_t m, float* y, int64_t ldy, bool add, int which,
               int thread);
  void pack_rows(const PackedMatrix& next, const float* x, int64_t m, int thread);
  void normalise(const std::vector<float>& weight, const PackedMatrix& next, int64_t m, int thread);
  void finish(const Batch& batch, int thread);

  const CpuModel& model_;
  const CpuOptions& options_;
  ThreadPool& pool_;
  KvPlane* plane_;
  int64_t max_rows_;  // a whole tree fits, however few rows a step may have
  Attention attention_;
  WorkShare shares_[2];
  CpuScratch s_;
  std::vector<int32_t> needs_fc_;  // rows of the present pass
};

}  // namespace pf
