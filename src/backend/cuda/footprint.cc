// The memory of the CUDA backend, worked out before it is made, from the same options: what each
// part of it allocates, in the order of its members. Needs no CUDA toolkit.
#include "backend/cuda/head_chunks.h"
#include "backend/cuda/int4_shape.h"
#include "backend/cuda/shard.h"
#include "kernels/sample_types.h"

namespace pf {
namespace {

using Tensors = std::initializer_list<const Tensor*>;

// Rows below each other, in 16 bits or packed as gemm_int4 reads them (upload_model.cc).
int64_t matrix_bytes(Tensors tensors, bool int4, int int4_group) {
  const auto shape = int4_shape_of(std::span(tensors.begin(), tensors.size()), int4_group);
  return int4 ? kernels::packed_int4_bytes(shape) : 2 * shape.N * shape.K;
}

int64_t float_bytes(Tensors tensors) {
  int64_t n = 0;
  for (const Tensor* t : tensors)
    if (!t->empty()) n += t->size();
  return 4 * n;
}

int64_t weight_bytes(const Model& model, const Model* embedding_of, const ModelShape& m,
                     bool int4) {
  auto matrix = [&](Tensors tensors) {
    return matrix_bytes(tensors, int4, model.config.int4_group);
  };
  int64_t total = 4 * (m.D / 2) + 4 * static_cast<int64_t>(model.head_tokens.size());  // RoPE, ids
  if (model.takes_hidden())
    total += float_bytes({&model.fc_bias, &model.embedding_norm, &model.hidden_norm}) +
             matrix({&model.fc});
  for (const LayerWeights& w : model.layers)
    total += float_bytes({&w.attention_norm, &w.ffn_norm, &w.q_bias, &w.k_bias, &w.v_bias}) +
             matrix({&w.q, &w.k, &w.v}) + matrix({&w.o}) + matrix({&w.gate, &w.up}) +
             matrix({&w.down});
  return total + float_bytes({&model.final_norm}) + 2 * m.embedding_rows * m.E +
         matrix_bytes({&head_of(model, embedding_of)}, int4, head_int4_group(model, embedding_of));
}

// What the file has of those matrices.
int64_t read_bytes(const Model& model, const Tensor& head, const Tensor& embedding) {
  return matrix_file_bytes(model) + stored_bytes(head) + stored_bytes(embedding);
}

int64_t forward_bytes(const ModelShape& m, const CudaOptions& o) {
  const int64_t T = n_max_rows(o), chunk = o.head_chunk_rows, parts = n_attention_parts(o);
  const int64_t picked = m.takes_hidden() ? m.E : 0;
  const int64_t floats = T * (m.E + m.D + (keeps_qkv(o) ? m.qkv_width() : 0) + picked) +
                         parts * m.H * (m.D + 2) + chunk * m.head_rows;
  const int64_t halves =
      T * (m.E + 2 * m.H * m.D + (has_library(o) ? 3 : 1) * m.F + m.E) + chunk * m.E;
  const int64_t counters = 1 + parts * m.G * 2;
  return static_cast<int64_t>(kForwardStaging) + 4 * (floats + counters) + 2 * halves +
         (has_library(o) ? kBlasWorkspaceBytes : 0);
}

// States that a target keeps for a head, and what a head makes its rows of (but for the states
// that it keeps for blocks).
int64_t hidden_bytes(const ModelShape& m, const CudaOptions& o) {
  const int64_t T = n_max_rows(o), n_taps = static_cast<int64_t>(o.tap_layers.size());
  int64_t total = o.keep_hidden ? T * std::max<int64_t>(1, n_taps) * m.E * 2 : 0;
  if (o.keep_hidden) total += T * n_taps * 4;
  if (o.keep_hidden || m.takes_hidden()) total += T * 4;  // 0, 1, 2, ...
  if (!m.takes_hidden()) return total;
  total += T * 2 * m.E * 2 + static_cast<int64_t>(kHiddenStaging);
  return total + (m.head_kind == HeadKind::kEagle3 ? T * m.hidden_width * 2 : 0);
}

int64_t kv_block_bytes(const ModelShape& m, const CudaOptions& o) {
  return m.L * 2 * m.G * o.block_tokens * kv_row_bytes(m.D, o.int8_kv) + m.hidden_width * 2;
}

int64_t judge_bytes(const ModelShape& m, const CudaOptions& o) {
  if (!o.judges) return 0;
  return static_cast<int64_t>(kJudgeStaging + judge_answer_bytes(o)) +
         n_judged_at_once(o) * 4 * m.V;
}

int64_t draft_bytes(const ModelShape& m, const CudaOptions& o) {
  const int64_t T = n_max_rows(o), top = std::min<int64_t>(o.draft_top_n, m.head_rows);
  const auto listed = static_cast<int64_t>(sizeof(kernels::TokenValue)) * top;
  return static_cast<int64_t>(kDraftStaging) + T * (listed + 4 * 4) + o.head_chunk_rows * 4 +
         o.head_chunk_rows * kernels::n_slices_of(m.head_rows) * listed;
}

// One rank of several (sharded_forward.h): the first judges, the others only compute.
Footprint rank_footprint(const Model& model, const CudaOptions& options, int32_t rank) {
  const Model part = shard_shapes(model, {rank, options.n_devices});
  CudaOptions o = options;
  if (rank > 0) {
    o.keep_hidden = false;
    o.tap_layers.clear();
  }
  ModelShape m = shape_of(part, nullptr);
  Footprint f;
  f.weight_bytes = weight_bytes(part, nullptr, m, o.int4);
  f.read_bytes = read_bytes(part, part.head, part.embedding);
  f.kv_block_bytes = kv_block_bytes(m, o);
  f.scratch_bytes = forward_bytes(m, o) + hidden_bytes(m, o) +
                    static_cast<int64_t>(kMoveStaging + kRankStaging) +
                    4 * (n_max_rows(o) * m.E + gathered_floats(m.E, m.head_rows, o));
  m.V = model.head.rows();
  if (rank == 0) f.scratch_bytes += judge_bytes(m, o) + 4 * o.head_chunk_rows * m.V;
  f.collective_bytes = kCollectiveBytes;
  return f;
}

Footprint cuda_heads_footprint(const Model& model, const CudaOptions& o) {
  const int64_t E = model.config.width, V = model.config.vocabulary_size, B = o.head_chunk_rows;
  const int64_t top = std::min<int64_t>(o.draft_top_n, V),
                listed = static_cast<int64_t>(sizeof(kernels::TokenValue)) * top;
  const auto n_heads = static_cast<int64_t>(model.medusa.size());
  Footprint f;
  for (const MedusaHead& h : model.medusa) {
    f.weight_bytes += matrix_bytes({&h.out}, o.int4, model.config.int4_group);
    for (const MedusaBlock& b : h.blocks)
      f.weight_bytes +=
          matrix_bytes({&b.w}, o.int4, model.config.int4_group) + float_bytes({&b.bias});
  }
  f.read_bytes = matrix_file_bytes(model);
  f.scratch_bytes = static_cast<int64_t>(kHiddenStaging) + 2 * (o.max_rows + 2 * B) * E +
                    4 * B * (E + V) + B * kernels::n_slices_of(V) * listed +
                    n_heads * B * (listed + 4) + 4 * B;
  return f;
}

}  // namespace

Footprint cuda_footprint(const Model& model, const Model* embedding_of, const CudaOptions& o,
                         int32_t rank) {
  if (o.n_devices > 1) return rank_footprint(model, o, rank);
  if (model.head_kind == HeadKind::kMedusa) return cuda_heads_footprint(model, o);
  const ModelShape m = shape_of(model, embedding_of);
  Footprint f;
  f.weight_bytes = weight_bytes(model, embedding_of, m, o.int4);
  f.read_bytes =
      read_bytes(model, head_of(model, embedding_of), embedding_tensor_of(model, embedding_of));
  f.kv_block_bytes = kv_block_bytes(m, o);
  f.scratch_bytes = forward_bytes(m, o) + hidden_bytes(m, o) + judge_bytes(m, o) +
                    draft_bytes(m, o) + static_cast<int64_t>(kMoveStaging);
  f.graph_bytes = o.graphs ? kGraphNodes * kGraphNodeBytes : 0;
  return f;
}

}  // namespace pf
