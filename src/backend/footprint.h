#pragma once

#include <cstdint>

#include "model/model.h"

namespace pf {

// What a backend takes of its device's memory, from shapes alone and to the byte: of the same model
// and options BackendInfo says the same once it is made (but for what grows with the first steps).
struct Footprint {
  int64_t weight_bytes = 0;
  int64_t kv_block_bytes = 0;  // one block of tokens, all layers
  int64_t scratch_bytes = 0;   // of a step
  int64_t graph_bytes = 0;     // set aside for the driver: BackendInfo counts it as scratch
};

// The letters of a model (README), as both backends hold them.
struct ModelShape {
  int64_t L = 0, E = 0, F = 0, H = 0, G = 0, D = 0;
  int64_t V = 0;               // of the logits that sampling sees
  int64_t head_rows = 0;       // of the head; below V where the vocabulary is reduced
  int64_t embedding_rows = 0;  // V'
  bool takes_hidden = false;

  int64_t qkv_width() const { return (H + 2 * G) * D; }
};

// Whether the rows of the head are those of the embedding, so that one copy serves for both. The
// addresses alone do not tell: a Model of shapes has one for all its matrices.
inline bool head_is_embedding(const Model& m) {
  return m.config.tied_head && m.head.data.data() == m.embedding.data.data();
}

// `embedding_of`: the target whose embedding a draft uses; null else.
inline ModelShape shape_of(const Model& m, const Model* embedding_of) {
  const ModelConfig& c = m.config;
  ModelShape s{c.n_layers, c.width, c.ffn_width, c.n_heads, c.n_kv_heads, c.head_width};
  s.head_rows = m.head.rows();
  s.V = m.head_tokens.empty() ? m.head.rows()
        : embedding_of        ? embedding_of->config.vocabulary_size
                              : c.vocabulary_size;
  s.embedding_rows = (m.shares_embedding ? *embedding_of : m).embedding.rows();
  s.takes_hidden = m.takes_hidden();
  return s;
}

}  // namespace pf
