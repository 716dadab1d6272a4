#pragma once

#include <cstdint>

#include "model/model.h"

namespace pf {

// What a backend takes of its device's memory, from shapes alone and to the byte: of the same model
// and options BackendInfo says the same once it is made (but for what grows with the first steps).
struct Footprint {
  int64_t weight_bytes = 0;
  int64_t kv_block_bytes = 0;    // one block of tokens, all layers; a head's kept state too
  int64_t scratch_bytes = 0;     // of a step
  int64_t graph_bytes = 0;       // set aside for the driver: BackendInfo counts it as scratch
  int64_t collective_bytes = 0;  // set aside for what several devices exchange their sums with
  // No memory: of the files' matrices, read while it is made (the options' `progress` counts them).
  int64_t read_bytes = 0;
};

// The letters of a model (README), as both backends hold them.
struct ModelShape {
  int64_t L = 0, E = 0, F = 0, H = 0, G = 0, D = 0;
  int64_t V = 0;               // of the logits that sampling sees
  int64_t head_rows = 0;       // of the head; below V where the vocabulary is reduced
  int64_t embedding_rows = 0;  // V'
  HeadKind head_kind = HeadKind::kNone;
  int64_t hidden_width = 0;  // Model::hidden_width

  bool takes_hidden() const { return head_kind != HeadKind::kNone; }
  int64_t qkv_width() const { return (H + 2 * G) * D; }
  int64_t qkv_input(int64_t layer) const {  // what q, k and v of it read
    return layer == 0 && head_kind == HeadKind::kEagle3 ? 2 * E : E;
  }
};

// The head, which may be the target's.
inline const Tensor& head_of(const Model& m, const Model* embedding_of) {
  return (m.shares_head ? *embedding_of : m).head;
}

// The embedding, likewise.
inline const Tensor& embedding_tensor_of(const Model& m, const Model* embedding_of) {
  return (m.shares_embedding ? *embedding_of : m).embedding;
}

// What the file has of the layers' matrices, of fc and of heads for each position to come.
inline int64_t matrix_file_bytes(const Model& m) {
  int64_t bytes = stored_bytes(m.fc);
  for (const LayerWeights& w : m.layers)
    for (const Tensor* t : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down})
      bytes += stored_bytes(*t);
  for (const MedusaHead& h : m.medusa) {
    bytes += stored_bytes(h.out);
    for (const MedusaBlock& b : h.blocks) bytes += stored_bytes(b.w);
  }
  return bytes;
}

// ModelConfig::int4_group of the file that holds it.
inline int head_int4_group(const Model& m, const Model* embedding_of) {
  return (m.shares_head ? *embedding_of : m).config.int4_group;
}

// Whether the rows of the head are those of the embedding, so that one copy serves for both. The
// addresses alone do not tell: a Model of shapes has one for all its matrices.
inline bool head_is_embedding(const Model& m, const Model* embedding_of) {
  const Model &head = m.shares_head ? *embedding_of : m,
              &embedding = m.shares_embedding ? *embedding_of : m;
  return &head == &embedding && head.config.tied_head &&
         head.head.data.data() == embedding.embedding.data.data();
}

// `embedding_of`: the target whose embedding or head a draft uses; null else.
inline ModelShape shape_of(const Model& m, const Model* embedding_of) {
  const ModelConfig& c = m.config;
  ModelShape s{c.n_layers, c.width, c.ffn_width, c.n_heads, c.n_kv_heads, c.head_width};
  s.head_rows = head_of(m, embedding_of).rows();
  s.V = m.head_tokens.empty() ? s.head_rows
        : embedding_of        ? embedding_of->config.vocabulary_size
                              : c.n_tokens;
  s.embedding_rows = embedding_tensor_of(m, embedding_of).rows();
  s.head_kind = m.head_kind;
  s.hidden_width = m.hidden_width();
  return s;
}

}  // namespace pf
