// The memory of the CPU backend, worked out before it is made.
#include <algorithm>
#include <initializer_list>

#include "backend/cpu/attention.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_heads.h"
#include "backend/cpu/scratch.h"
#include "model/int4_rows.h"

namespace pf {
namespace {

size_t float_bytes(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

// The largest activation chunk of `rows` rows that any product of the model reads.
size_t packed_bytes(const ModelShape& m, WeightFormat format, int64_t rows) {
  int64_t width = std::max({m.E, m.H * m.D, m.F});
  if (m.takes_hidden()) width = std::max({width, 2 * m.E, m.hidden_width});
  return static_cast<size_t>(packed_rows_bytes(format, n_steps_of(format, width), rows));
}

}  // namespace

WeightFormat format_of(CpuOptions::Weights w) {
  switch (w) {
    case CpuOptions::Weights::kF32:
      return WeightFormat::kF32;
    case CpuOptions::Weights::kBf16:
      return WeightFormat::kBf16;
    case CpuOptions::Weights::kInt8:
      return WeightFormat::kInt8;
    case CpuOptions::Weights::kInt4:
      return WeightFormat::kInt4;
  }
  die("no such weights");
}

PackedShape packed_shape_of(std::span<const Tensor* const> tensors, CpuOptions::Weights weights,
                            int int4_group) {
  PackedShape shape{format_of(weights), 0, tensors[0]->cols()};
  for (const Tensor* t : tensors) shape.n += t->rows();
  if (shape.format == WeightFormat::kInt4 && int4_group_of(int4_group, tensors) == 4 * kGroup)
    shape.format = WeightFormat::kInt4Wide;
  return shape;
}

int64_t cpu_matrix_bytes(const Model& m, const Model* embedding_of, CpuOptions::Weights weights) {
  auto matrix = [&](std::initializer_list<const Tensor*> tensors, int int4_group) {
    return packed_shape_of(std::span(tensors.begin(), tensors.size()), weights, int4_group).bytes();
  };
  const int group = m.config.int4_group;
  int64_t bytes = matrix({&head_of(m, embedding_of)}, head_int4_group(m, embedding_of));
  for (const LayerWeights& w : m.layers)
    bytes += matrix({&w.q, &w.k, &w.v}, group) + matrix({&w.o}, group) +
             matrix({&w.gate, &w.up}, group) + matrix({&w.down}, group);
  if (m.takes_hidden()) bytes += matrix({&m.fc}, group);
  return bytes;
}

CpuScratchBytes cpu_scratch_bytes(const ModelShape& m, const CpuOptions& o, int n_threads) {
  WeightFormat format = format_of(o.weights);
  int64_t T = std::max(o.max_rows, o.head_chunk_rows), threads = n_threads;
  CpuScratchBytes s;
  s.residual = float_bytes(T * m.E);
  s.qkv = float_bytes(T * m.qkv_width());
  s.attended = float_bytes(T * m.H * m.D);
  s.gate_up = float_bytes(T * 2 * m.F);
  s.packed = packed_bytes(m, format, T);
  s.own_packed = packed_bytes(m, format, 1);
  s.row = float_bytes(threads * std::max(2 * m.E, m.F));
  s.hidden = float_bytes(T * m.E);
  const auto n_kept = std::max<int64_t>(1, static_cast<int64_t>(o.tap_layers.size()));
  if (o.keep_hidden) s.kept = float_bytes(T * n_kept * m.E);
  if (m.head_kind == HeadKind::kEagle3) {
    s.joined = float_bytes(T * 2 * m.E);
    s.fused = s.own = float_bytes(T * m.E);
  }
  s.logits = float_bytes(o.head_chunk_rows * m.head_rows);
  s.angles = float_bytes(2 * (T * m.D / 2));
  s.total = s.residual + s.qkv + s.attended + s.gate_up + s.packed +
            s.own_packed * static_cast<size_t>(threads) + s.row + s.hidden + s.kept + s.joined +
            s.fused + s.own + s.logits + s.angles +
            static_cast<size_t>(Attention::bytes_of(m.H, m.D, T, o.max_context, n_threads));
  return s;
}

Footprint cpu_footprint(const Model& model, const Model* embedding_of, const CpuOptions& o,
                        int n_threads) {
  if (model.head_kind == HeadKind::kMedusa) return cpu_heads_footprint(model, o, n_threads);
  const ModelShape m = shape_of(model, embedding_of);
  const int64_t number_bytes = o.weights == CpuOptions::Weights::kF32 ? 4 : 2;
  Footprint f;
  f.weight_bytes = cpu_matrix_bytes(model, embedding_of, o.weights);
  f.read_bytes = matrix_file_bytes(model) + stored_bytes(head_of(model, embedding_of));
  if (!is_float(format_of(o.weights)) || !head_is_embedding(model, embedding_of)) {
    f.weight_bytes += m.embedding_rows * m.E * number_bytes;
    f.read_bytes += stored_bytes(embedding_tensor_of(model, embedding_of));
  }
  // Numbers, a scale for each row of int8, and the state that a head keeps.
  f.kv_block_bytes = m.L * 2 * m.G * o.block_tokens * (o.int8_kv ? m.D + 4 : m.D * number_bytes) +
                     static_cast<int64_t>(float_bytes(m.hidden_width));
  f.scratch_bytes = static_cast<int64_t>(cpu_scratch_bytes(m, o, n_threads).total);
  return f;
}

}  // namespace pf
