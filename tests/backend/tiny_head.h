#pragma once

#include "backend/tiny_model.h"

namespace pf {

struct TinyHead {
  HeadKind kind = HeadKind::kEagle;
  int64_t n_states = 1;  // layers that an EAGLE-3 head reads
  bool bare = false;     // EAGLE-1: no norms but behind attention
  int32_t every = 1;     // the head has every so-manieth token
};

// A random head of any small shape over hidden states of its own width, with an embedding of its
// own.
inline Model tiny_head(const TinyShape& shape, const TinyHead& head) {
  TinyShape s = shape;
  s.layers = 1;
  Model m = tiny_model(s);
  TinyTensors make(s.seed + 1000, &m.storage);
  auto tensor = [&](std::vector<int64_t> dims, float scale, float offset = 0) {
    return make("head", std::move(dims), scale, offset);
  };
  const int64_t E = s.width, q = s.heads * s.head_width, kv = s.kv_heads * s.head_width;
  const float by = 1 / std::sqrt(static_cast<float>(2 * E));
  LayerWeights& w = m.layers[0];
  m.head_kind = head.kind;
  if (head.kind == HeadKind::kEagle3) {
    m.fc = tensor({E, head.n_states * E}, 1 / std::sqrt(static_cast<float>(head.n_states * E)));
    w.attention_norm = {};
    w.q = tensor({q, 2 * E}, 2 * by);
    w.k = tensor({kv, 2 * E}, 2 * by);
    w.v = tensor({kv, 2 * E}, by);
  } else {
    m.fc = tensor({E, 2 * E}, by);
  }
  if (head.bare) {
    m.fc_bias = tensor({E}, 0.3f);
    w.attention_norm = m.final_norm = {};
  } else {
    m.embedding_norm = tensor({E}, 0.1f, 1);
    m.hidden_norm = tensor({E}, 0.1f, 1);
  }
  if (head.every == 1) return m;
  for (int32_t t = 1; t < s.vocabulary; t += head.every) m.head_tokens.push_back(t);
  m.config.vocabulary_size = static_cast<int64_t>(m.head_tokens.size());
  m.config.n_tokens = s.vocabulary;
  m.config.tied_head = false;
  m.head = tensor({m.config.vocabulary_size, E}, 1);
  return m;
}

// A random model whose head has every so-manieth token.
inline Model reduced_model(const TinyShape& shape, int32_t every) {
  Model m = tiny_head(shape, {.every = every});
  m.head_kind = HeadKind::kNone;
  m.fc = m.embedding_norm = m.hidden_norm = {};
  return m;
}

}  // namespace pf
