#pragma once

#include <cmath>

#include "backend/tiny_tensor.h"
#include "model/model.h"

namespace pf {

struct TinyShape {
  int64_t layers = 2, width = 48, ffn = 80, heads = 6, kv_heads = 2, head_width = 16,
          vocabulary = 101;
  bool bias = false;
  int64_t sliding_window = 0;
  uint32_t seed = 1;
};

// A random float model of any small shape; tied head.
inline Model tiny_model(const TinyShape& s) {
  Model m;
  TinyTensors tensor(s.seed, &m.storage);
  ModelConfig& c = m.config;
  c.architecture = "llama";
  c.n_layers = s.layers;
  c.width = s.width;
  c.ffn_width = s.ffn;
  c.n_heads = s.heads;
  c.n_kv_heads = s.kv_heads;
  c.head_width = s.head_width;
  c.vocabulary_size = s.vocabulary;
  c.n_tokens = s.vocabulary;
  c.max_context = 4096;
  c.rope_theta = 10000;
  c.norm_epsilon = 1e-5f;
  c.qkv_bias = s.bias;
  c.tied_head = true;
  c.sliding_window = s.sliding_window;
  m.embedding = tensor("embedding", {s.vocabulary, s.width}, 1);
  m.final_norm = tensor("final_norm", {s.width}, 0.1f, 1);
  m.head = m.embedding;
  float by = 1 / std::sqrt(static_cast<float>(s.width)),
        by_f = 1 / std::sqrt(static_cast<float>(s.ffn));
  int64_t q = s.heads * s.head_width, kv = s.kv_heads * s.head_width;
  for (int64_t l = 0; l < s.layers; ++l) {
    LayerWeights w;
    w.attention_norm = tensor("attention_norm", {s.width}, 0.1f, 1);
    w.q = tensor("q", {q, s.width}, 2 * by);
    w.k = tensor("k", {kv, s.width}, 2 * by);
    w.v = tensor("v", {kv, s.width}, by);
    if (s.bias) {
      w.q_bias = tensor("q_bias", {q}, 0.5f);
      w.k_bias = tensor("k_bias", {kv}, 0.5f);
      w.v_bias = tensor("v_bias", {kv}, 0.5f);
    }
    w.o = tensor("o", {s.width, q}, by);
    w.ffn_norm = tensor("ffn_norm", {s.width}, 0.1f, 1);
    w.gate = tensor("gate", {s.ffn, s.width}, by);
    w.up = tensor("up", {s.ffn, s.width}, by);
    w.down = tensor("down", {s.width, s.ffn}, by_f);
    m.layers.push_back(std::move(w));
  }
  return m;
}

// The same model by its definition, in double, one position after another: logits [tokens, V]. A
// head takes the hidden state of the token before with each token; `outputs`: behind the final
// norm.
inline std::vector<std::vector<double>> define_logits(
    const Model& m, const std::vector<int32_t>& tokens,
    const std::vector<std::vector<double>>* hidden = nullptr,
    std::vector<std::vector<double>>* outputs = nullptr) {
  using Row = std::vector<double>;
  const ModelConfig& c = m.config;
  int64_t D = c.head_width, heads = c.n_heads, per = heads / c.n_kv_heads;
  auto at = [](const Tensor& t, int64_t i) {
    return static_cast<double>(reinterpret_cast<const float*>(t.data.data())[i]);
  };
  auto product = [&](const Tensor& w, const Row& x) {
    Row y(static_cast<size_t>(w.rows()), 0);
    for (int64_t r = 0; r < w.rows(); ++r)
      for (int64_t k = 0; k < w.cols(); ++k)
        y[static_cast<size_t>(r)] += at(w, r * w.cols() + k) * x[static_cast<size_t>(k)];
    return y;
  };
  auto norm = [&](const Tensor& w, const Row& x) {
    double ss = 0;
    for (double v : x) ss += v * v;
    Row y = x;
    for (size_t i = 0; i < y.size(); ++i)
      y[i] *= at(w, static_cast<int64_t>(i)) /
              std::sqrt(ss / static_cast<double>(x.size()) + static_cast<double>(c.norm_epsilon));
    return y;
  };
  auto rotate = [&](Row* x, size_t position) {
    for (size_t h = 0; h < x->size(); h += static_cast<size_t>(D))
      for (int64_t i = 0; i < D / 2; ++i) {
        double angle = static_cast<double>(position) *
                       std::pow(static_cast<double>(c.rope_theta),
                                -2.0 * static_cast<double>(i) / static_cast<double>(D));
        double &a = (*x)[h + static_cast<size_t>(i)], &b = (*x)[h + static_cast<size_t>(i + D / 2)],
               u = a, v = b;
        a = u * std::cos(angle) - v * std::sin(angle);
        b = v * std::cos(angle) + u * std::sin(angle);
      }
  };
  std::vector<std::vector<Row>> keys(m.layers.size()), values(m.layers.size());
  std::vector<Row> out;
  for (size_t p = 0; p < tokens.size(); ++p) {
    Row x;
    for (int64_t i = 0; i < c.width; ++i) x.push_back(at(m.embedding, tokens[p] * c.width + i));
    if (hidden != nullptr) {
      Row both = norm(m.embedding_norm, x), h = norm(m.hidden_norm, (*hidden)[p]);
      both.insert(both.end(), h.begin(), h.end());
      x = product(m.fc, both);
    }
    for (size_t l = 0; l < m.layers.size(); ++l) {
      const LayerWeights& w = m.layers[l];
      Row n = norm(w.attention_norm, x), q = product(w.q, n), k = product(w.k, n),
          v = product(w.v, n);
      auto add = [&](Row* y, const Tensor& bias) {
        for (size_t i = 0; !bias.empty() && i < y->size(); ++i)
          (*y)[i] += at(bias, static_cast<int64_t>(i));
      };
      add(&q, w.q_bias), add(&k, w.k_bias), add(&v, w.v_bias);
      rotate(&q, p), rotate(&k, p);
      keys[l].push_back(k), values[l].push_back(v);
      Row mixed(q.size(), 0);
      for (int64_t h = 0; h < heads; ++h) {
        size_t from = static_cast<size_t>(h * D), kv = static_cast<size_t>(h / per * D);
        size_t begin = c.sliding_window > 0 && static_cast<int64_t>(p) >= c.sliding_window
                           ? p + 1 - static_cast<size_t>(c.sliding_window)
                           : 0;
        Row s;
        double max = -1e300, total = 0;
        for (size_t j = begin; j <= p; ++j) {
          double dot = 0;
          for (size_t d = 0; d < static_cast<size_t>(D); ++d)
            dot += q[from + d] * keys[l][j][kv + d];
          s.push_back(dot / std::sqrt(static_cast<double>(D)));
          max = std::max(max, s.back());
        }
        for (double& e : s) total += e = std::exp(e - max);
        for (size_t j = begin; j <= p; ++j)
          for (size_t d = 0; d < static_cast<size_t>(D); ++d)
            mixed[from + d] += s[j - begin] / total * values[l][j][kv + d];
      }
      Row o = product(w.o, mixed);
      for (size_t i = 0; i < x.size(); ++i) x[i] += o[i];
      n = norm(w.ffn_norm, x);
      Row gate = product(w.gate, n), up = product(w.up, n);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      Row down = product(w.down, gate);
      for (size_t i = 0; i < x.size(); ++i) x[i] += down[i];
    }
    Row y = norm(m.final_norm, x);
    out.push_back(product(m.head, y));
    if (outputs != nullptr) outputs->push_back(y);
  }
  return out;
}

}  // namespace pf
