#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_model.h"
#include "backend/footprint.h"

namespace pf {
namespace {

std::vector<float> floats(const Tensor& t) {
  std::vector<float> v(static_cast<size_t>(t.size()));
  if (!t.empty()) dequantize_rows(t, 0, t.rows(), v.data());
  return v;
}

Buffer pack_embedding(const Tensor& t, bool f32, ThreadPool& pool, Progress* progress) {
  int64_t n = t.rows(), width = t.cols();
  Buffer out(static_cast<size_t>(n * width * (f32 ? 4 : 2)));
  pool.run([&](int thread) {
    std::vector<float> row(static_cast<size_t>(width));
    ProgressTally tally(progress);
    Range rows = split_range(n, 1, pool.size(), thread);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      dequantize_rows(t, r, 1, row.data());
      tally.add(row_bytes(t.type, width));
      for (int64_t i = 0; i < width; ++i) {
        if (f32)
          out.as<float>()[r * width + i] = row[static_cast<size_t>(i)];
        else
          out.as<bf16>()[r * width + i] = to_bf16(row[static_cast<size_t>(i)]);
      }
    }
  });
  return out;
}

// What the backend knows of a model besides its weights.
void set_shape(const Model& model, const Model* embedding_of, const CpuOptions& options,
               CpuModel* out) {
  const ModelConfig& c = model.config;
  out->f32 = options.weights == CpuOptions::Weights::kF32;
  out->L = c.n_layers;
  out->E = c.width;
  out->F = c.ffn_width;
  out->H = c.n_heads;
  out->G = c.n_kv_heads;
  out->D = c.head_width;
  out->sliding_window = c.sliding_window;
  out->epsilon = c.norm_epsilon;
  out->rope = rope_frequencies(c);
  out->head_tokens = model.head_tokens;
  const ModelShape shape = shape_of(model, embedding_of);
  out->head_rows = shape.head_rows;
  out->V = shape.V;
  out->head_kind = model.head_kind;
}

// Packs matrices behind each other in one stretch of memory.
class MatrixRow {
 public:
  MatrixRow(const Buffer& room, const CpuOptions& options, ThreadPool& pool)
      : next_(room.as()), end_(next_ + room.bytes()), options_(options), pool_(pool) {}

  Status pack(std::initializer_list<const Tensor*> list, int int4_group, PackedMatrix* into) {
    const std::span tensors(list.begin(), list.size());
    const PackedShape shape = packed_shape_of(tensors, options_.weights, int4_group);
    check(shape.bytes() <= end_ - next_, "more matrices than memory was set aside for");
    Result<PackedMatrix> packed =
        pack_matrix(tensors, shape.format, pool_, next_, options_.progress);
    if (!packed.ok()) return packed.status();
    *into = packed.take();
    next_ += shape.bytes();
    return {};
  }

 private:
  std::byte *next_, *end_;
  const CpuOptions& options_;
  ThreadPool& pool_;
};

}  // namespace

Status pack_model(const Model& model, const Model* embedding_of, const CpuOptions& options,
                  ThreadPool& pool, CpuModel* out) {
  set_shape(model, embedding_of, options, out);
  out->matrices =
      Buffer(static_cast<size_t>(cpu_matrix_bytes(model, embedding_of, options.weights)));
  MatrixRow matrices(out->matrices, options, pool);
  const int group = model.config.int4_group;
  if (model.takes_hidden())
    if (Status s = matrices.pack({&model.fc}, group, &out->fc); !s.ok()) return s;
  for (const LayerWeights& w : model.layers) {
    CpuLayer layer;
    layer.attention_norm = floats(w.attention_norm);
    layer.ffn_norm = floats(w.ffn_norm);
    for (const Tensor* bias : {&w.q_bias, &w.k_bias, &w.v_bias}) {
      std::vector<float> b = floats(*bias);
      layer.qkv_bias.insert(layer.qkv_bias.end(), b.begin(), b.end());
    }
    Status s = matrices.pack({&w.q, &w.k, &w.v}, group, &layer.qkv);
    if (s.ok()) s = matrices.pack({&w.o}, group, &layer.o);
    if (s.ok()) s = matrices.pack({&w.gate, &w.up}, group, &layer.gate_up);
    if (s.ok()) s = matrices.pack({&w.down}, group, &layer.down);
    if (!s.ok()) return s;
    out->layers.push_back(std::move(layer));
  }
  out->final_norm = floats(model.final_norm);
  out->embedding_norm = floats(model.embedding_norm);
  out->hidden_norm = floats(model.hidden_norm);
  out->fc_bias = floats(model.fc_bias);
  if (Status s = matrices.pack({&head_of(model, embedding_of)},
                               head_int4_group(model, embedding_of), &out->head);
      !s.ok())
    return s;
  const Model& embeds = model.shares_embedding ? *embedding_of : model;
  bool is_head = out->head.is_float() && head_is_embedding(model, embedding_of);
  if (!is_head) out->embedding = pack_embedding(embeds.embedding, out->f32, pool, options.progress);
  return {};
}

}  // namespace pf
