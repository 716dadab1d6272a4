#pragma once

#include <cmath>
#include <vector>

#include "backend/tiny_tensor.h"
#include "model/model.h"

namespace pf {

struct TinyMedusa {
  int64_t width = 48, vocabulary = 101;
  int32_t n_heads = 3, n_blocks = 1;
  uint32_t seed = 7;
};

// Random Medusa heads of any small shape.
inline Model tiny_medusa(const TinyMedusa& shape) {
  Model m;
  TinyTensors tensor(shape.seed, &m.storage);
  const int64_t E = shape.width, V = shape.vocabulary;
  m.head_kind = HeadKind::kMedusa;
  m.config.architecture = "medusa";
  m.config.width = E;
  m.config.vocabulary_size = m.config.n_tokens = V;
  m.config.max_context = INT32_MAX;
  const float by = 1 / std::sqrt(static_cast<float>(E));
  for (int32_t h = 0; h < shape.n_heads; ++h) {
    MedusaHead& head = m.medusa.emplace_back();
    for (int32_t b = 0; b < shape.n_blocks; ++b)
      head.blocks.push_back({tensor("w", {E, E}, 2 * by), tensor("bias", {E}, 0.3f)});
    head.out = tensor("out", {V, E}, by);
  }
  return m;
}

// What a head says of a state, by its definition in double: x += silu(W x + b) for each block, then
// the rows of its own matrix times x.
inline std::vector<double> define_medusa(const Model& m, size_t head, std::vector<double> x) {
  auto at = [](const Tensor& t, int64_t i) {
    return static_cast<double>(reinterpret_cast<const float*>(t.data.data())[i]);
  };
  auto product = [&](const Tensor& w, const std::vector<double>& in) {
    std::vector<double> y(static_cast<size_t>(w.rows()), 0);
    for (int64_t r = 0; r < w.rows(); ++r)
      for (int64_t k = 0; k < w.cols(); ++k)
        y[static_cast<size_t>(r)] += at(w, r * w.cols() + k) * in[static_cast<size_t>(k)];
    return y;
  };
  for (const MedusaBlock& b : m.medusa[head].blocks) {
    std::vector<double> v = product(b.w, x);
    for (size_t i = 0; i < x.size(); ++i) {
      v[i] += at(b.bias, static_cast<int64_t>(i));
      x[i] += v[i] / (1 + std::exp(-v[i]));
    }
  }
  return product(m.medusa[head].out, x);
}

}  // namespace pf
