#include "backend/cuda/shard.h"

#include <algorithm>
#include <cstring>

#include "model/int4_rows.h"

namespace pf {
namespace {

// Rows [first, first + n) of a matrix, or so many values of a vector.
Tensor rows_of(const Tensor& t, int64_t first, int64_t n) {
  if (t.empty()) return t;
  Tensor part = t;
  part.shape[0] = n;
  const int64_t each = t.shape.size() == 1 ? row_bytes(t.type, 1) : row_bytes(t.type, t.cols());
  part.data = t.data.subspan(static_cast<size_t>(first * each), static_cast<size_t>(n * each));
  return part;
}

// Columns [first, first + n): whole blocks of the type.
Tensor columns_of(const Tensor& t, int64_t first, int64_t n, ModelStorage* storage) {
  Tensor part = t;
  part.shape.back() = n;
  const auto from = static_cast<size_t>(row_bytes(t.type, t.cols())),
             to = static_cast<size_t>(row_bytes(t.type, n)),
             skip = static_cast<size_t>(row_bytes(t.type, first));
  const auto rows = static_cast<size_t>(t.rows());
  part.data = t.data.first(rows * to);
  if (storage == nullptr) return part;
  std::span<std::byte> copy = storage->allocate(rows * to);
  for (size_t r = 0; r < rows; ++r)
    std::memcpy(copy.data() + r * to, t.data.data() + r * from + skip, to);
  part.data = copy;
  return part;
}

// In words, what keeps the shapes from being divided by n; empty: nothing.
std::string obstacle(const Model& model, int32_t n, bool int4) {
  const ModelConfig& c = model.config;
  auto count = [](int64_t v) { return std::to_string(v); };
  if (c.n_heads % n != 0) return count(c.n_heads) + " attention heads do not divide by it";
  if (c.n_kv_heads % n != 0 && n % c.n_kv_heads != 0)
    return count(c.n_kv_heads) + " KV heads neither divide by it nor it by them";
  if (c.ffn_width % (8 * n) != 0)
    return "the feed-forward width " + count(c.ffn_width) + " does not divide by 8 x it";
  if (model.head.rows() < n) return "the vocabulary is too small";
  for (const LayerWeights& w : model.layers)
    for (const Tensor* t : {&w.o, &w.down}) {
      const int64_t block =
          std::max<int64_t>(block_shape(t->type).n_weights, int4 ? kInt4Group : 1);
      if (t->cols() / n % block != 0)
        return t->name + ": rows of " + count(t->cols()) +
               " weights do not divide into whole groups of " + count(block);
    }
  return {};
}

}  // namespace

Status check_shards(const Model& model, int32_t n, bool int4) {
  const std::string why = obstacle(model, n, int4);
  if (why.empty()) return {};
  std::string possible = "1";
  for (int32_t m = 2; m <= std::min<int64_t>(model.config.n_heads, 64); ++m)
    if (obstacle(model, m, int4).empty()) possible += ", " + std::to_string(m);
  return invalid("--tensor-parallel-size " + std::to_string(n) + ": " + why +
                 "; possible for this model: " + possible);
}

ModelConfig shard_config(const ModelConfig& config, const Shard& shard) {
  ModelConfig c = config;
  c.n_heads /= shard.n;
  c.n_kv_heads = std::max<int64_t>(1, c.n_kv_heads / shard.n);
  c.ffn_width /= shard.n;
  return c;
}

LayerWeights shard_layer(const LayerWeights& w, const ModelConfig& config, const Shard& shard,
                         ModelStorage* storage) {
  if (shard.n == 1) return w;
  const ModelConfig c = shard_config(config, shard);
  const int64_t rank = shard.rank, D = c.head_width;
  const int64_t q = c.n_heads * D, kv = c.n_kv_heads * D, F = c.ffn_width;
  const int64_t first_kv = rank * config.n_kv_heads / shard.n * D;
  LayerWeights part = w;
  part.q = rows_of(w.q, rank * q, q);
  part.q_bias = rows_of(w.q_bias, rank * q, q);
  part.k = rows_of(w.k, first_kv, kv);
  part.k_bias = rows_of(w.k_bias, first_kv, kv);
  part.v = rows_of(w.v, first_kv, kv);
  part.v_bias = rows_of(w.v_bias, first_kv, kv);
  part.o = columns_of(w.o, rank * q, q, storage);
  part.gate = rows_of(w.gate, rank * F, F);
  part.up = rows_of(w.up, rank * F, F);
  part.down = columns_of(w.down, rank * F, F, storage);
  return part;
}

int64_t first_head_row(int64_t head_rows, const Shard& shard) {
  const int64_t each = (head_rows + shard.n - 1) / shard.n;
  return std::min(shard.rank * each, head_rows - each);
}

Tensor shard_head(const Tensor& head, const Shard& shard) {
  if (shard.n == 1) return head;
  return rows_of(head, first_head_row(head.rows(), shard), (head.rows() + shard.n - 1) / shard.n);
}

Model shard_shapes(const Model& model, const Shard& shard) {
  Model part;
  part.config = shard_config(model.config, shard);
  part.embedding = model.embedding;
  part.final_norm = model.final_norm;
  part.head = shard_head(model.head, shard);
  for (const LayerWeights& w : model.layers)
    part.layers.push_back(shard_layer(w, model.config, shard, nullptr));
  return part;
}

}  // namespace pf
