#include "device/synthetic.h"

#include <cmath>

#include "device/fill.h"

namespace pf {
namespace {

DeviceBuffer<float> floats(std::vector<float> values) {
  DeviceBuffer<float> out(static_cast<int64_t>(values.size()));
  cuda_check(cudaMemcpy(out.data(), values.data(), out.bytes(), cudaMemcpyHostToDevice));
  return out;
}
DeviceBuffer<float> ones(int64_t n) {
  return floats(std::vector<float>(static_cast<size_t>(n), 1));
}

}  // namespace

template <class A>
CudaMatrix<A> noise_matrix(int64_t N, int64_t K, bool int4, uint64_t seed) {
  CudaMatrix<A> m;
  m.N = N;
  m.K = K;
  m.int4 = int4;
  const float scale = std::sqrt(3.0f / static_cast<float>(K));  // variance 1 / K
  if (!int4) {
    m.data = DeviceMemory(static_cast<size_t>(2 * N * K));
    fill_noise(m.data.template as<A>(), N * K, seed, scale, nullptr);
    return m;
  }
  m.shape = {N, K, 32, true};
  const int64_t numbers = kernels::numbers_bytes(m.shape),
                all = kernels::packed_int4_bytes(m.shape);
  m.data = DeviceMemory(static_cast<size_t>(all));
  fill_bits(m.data.template as<uint32_t>(), numbers / 4, seed, nullptr);
  // Scales and minimums alike: d q + m with q up to 15.
  fill_noise(reinterpret_cast<f16*>(m.data.as() + numbers), (all - numbers) / 2, seed + 1,
             scale / 8, nullptr);
  return m;
}

template <class A>
CudaModel<A> noise_model(const Model& shapes, bool int4, uint64_t seed) {
  const ModelConfig& c = shapes.config;
  CudaModel<A> m;
  m.L = c.n_layers;
  m.E = c.width;
  m.F = c.ffn_width;
  m.H = c.n_heads;
  m.G = c.n_kv_heads;
  m.D = c.head_width;
  m.V = m.head_rows = shapes.head.rows();
  m.sliding_window = static_cast<int32_t>(c.sliding_window);
  m.epsilon = c.norm_epsilon;
  RopeFrequencies rope = rope_frequencies(c);
  m.rope_factor = rope.attention_factor;
  m.rope_inverse = floats(rope.inverse);
  m.embedding_rows = shapes.embedding.rows();
  m.embedding = DeviceBuffer<A>(m.embedding_rows * m.E);
  fill_noise(m.embedding.data(), m.embedding.size(), ++seed, 1, nullptr);
  for (int64_t l = 0; l < m.L; ++l) {
    CudaLayer<A> layer;
    layer.attention_norm = ones(m.E);
    layer.ffn_norm = ones(m.E);
    if (c.qkv_bias) layer.qkv_bias = ones(m.qkv_width());
    layer.qkv = noise_matrix<A>(m.qkv_width(), m.E, int4, seed += 2);
    layer.o = noise_matrix<A>(m.E, m.H * m.D, int4, seed += 2);
    layer.gate_up = noise_matrix<A>(2 * m.F, m.E, int4, seed += 2);
    layer.down = noise_matrix<A>(m.E, m.F, int4, seed += 2);
    m.layers.push_back(std::move(layer));
  }
  m.final_norm = ones(m.E);
  m.head = noise_matrix<A>(m.head_rows, m.E, int4, seed + 2);
  cuda_check(cudaDeviceSynchronize());
  return m;
}

template CudaMatrix<f16> noise_matrix(int64_t, int64_t, bool, uint64_t);
template CudaModel<f16> noise_model(const Model&, bool, uint64_t);

}  // namespace pf
