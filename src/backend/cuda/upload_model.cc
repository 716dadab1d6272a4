// From a model's files to the device: matrices merged (QKV; gate and up), converted to the numbers
// of the kernels or packed to 4 bits, norms and biases as float.
#include <atomic>
#include <mutex>

#include "backend/cuda/cuda_heads.h"
#include "backend/cuda/int4_shape.h"

namespace pf {
namespace {

template <class T>
DeviceBuffer<T> send(std::span<const T> values) {
  DeviceBuffer<T> out(static_cast<int64_t>(values.size()));
  if (!values.empty())
    cuda_check(cudaMemcpy(out.data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  return out;
}

// half > 0: in the order of kernels::unpaired_row.
DeviceBuffer<float> send_floats(std::initializer_list<const Tensor*> tensors, int64_t half = 0) {
  std::vector<float> all;
  for (const Tensor* t : tensors) {
    if (t->empty()) continue;
    size_t begin = all.size();
    all.resize(begin + static_cast<size_t>(t->size()));
    dequantize_rows(*t, 0, t->rows(), all.data() + begin);
  }
  std::vector<float> paired = all;
  for (size_t i = 0; half > 0 && i < all.size(); ++i)
    paired[i] = all[static_cast<size_t>(kernels::unpaired_row(static_cast<int64_t>(i), half))];
  return send<float>(paired);
}

void convert(float v, f16* out) { *out = to_f16(v); }
void convert(float v, bf16* out) { *out = to_bf16(v); }

using Tensors = std::initializer_list<const Tensor*>;

// The rows of several tensors as those of one matrix: one behind the other, or, with halves, in the
// order of kernels::unpaired_row.
class MergedRows {
 public:
  explicit MergedRows(Tensors tensors, int64_t half = 0) : tensors_(tensors), half_(half) {
    for (const Tensor* t : tensors) N_ += t->rows();
    check(half == 0 || N_ % (2 * half) == 0, "rows to be paired that are no whole halves");
  }
  int64_t N() const { return N_; }
  int64_t K() const { return tensors_[0]->cols(); }
  std::span<const Tensor* const> tensors() const { return tensors_; }

  struct Place {
    const Tensor* tensor;
    int64_t row;
  };
  Place operator[](int64_t row) const {
    if (half_ > 0) row = kernels::unpaired_row(row, half_);
    size_t i = 0;
    for (; row >= tensors_[i]->rows(); ++i) row -= tensors_[i]->rows();
    return {tensors_[i], row};
  }

 private:
  std::vector<const Tensor*> tensors_;
  int64_t half_, N_ = 0;
};

// All rows as A [N, K].
template <class A>
std::vector<A> convert_rows(const MergedRows& rows, ThreadPool& pool, Progress* progress) {
  const int64_t K = rows.K();
  std::vector<A> out(static_cast<size_t>(rows.N() * K));
  pool.run([&](int thread) {
    std::vector<float> row(static_cast<size_t>(K));
    ProgressTally tally(progress);
    Range mine = split_range(rows.N(), 1, pool.size(), thread);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
      const auto [tensor, at] = rows[r];
      dequantize_rows(*tensor, at, 1, row.data());
      tally.add(row_bytes(tensor->type, K));
      for (int64_t k = 0; k < K; ++k)
        convert(row[static_cast<size_t>(k)], &out[static_cast<size_t>(r * K + k)]);
    }
  });
  return out;
}

// The same packed for gemm_int4.
class Int4Packer {
 public:
  Int4Packer(const MergedRows& rows, int int4_group)
      : rows_(rows), shape_(int4_shape_of(rows.tensors(), int4_group)) {}
  const kernels::Int4Shape& shape() const { return shape_; }

  Result<std::vector<std::byte>> pack(ThreadPool& pool, Progress* progress) const {
    std::vector<std::byte> out(static_cast<size_t>(kernels::packed_int4_bytes(shape_)));
    std::mutex mutex;
    Status status;
    pool.run([&](int thread) {
      ProgressTally tally(progress);
      Range units = split_range(kernels::n_units(shape_), 1, pool.size(), thread);
      for (int64_t u = units.begin; u < units.end; ++u)
        if (Status s = pack_unit(u, out.data(), &tally); !s.ok()) {
          std::lock_guard lock(mutex);
          status = s;
        }
    });
    if (!status.ok()) return status;
    return out;
  }

 private:
  Status pack_unit(int64_t unit, std::byte* out, ProgressTally* tally) const {
    int64_t first = unit * 32, n = std::min<int64_t>(32, shape_.N - first);
    int64_t groups = shape_.K / shape_.group;
    std::vector<uint8_t> q(static_cast<size_t>(n * shape_.K));
    std::vector<f16> d(static_cast<size_t>(n * groups)), m(d.size());
    for (int64_t r = 0; r < n; ++r) {
      const auto [tensor, row] = rows_[first + r];
      Int4Row to{q.data() + r * shape_.K, d.data() + r * groups, m.data() + r * groups};
      if (Status s = read_int4_row(*tensor, row, shape_.group, to); !s.ok())
        return s.within(tensor->name);
      tally->add(row_bytes(tensor->type, shape_.K));
    }
    kernels::pack_int4_for_mma(shape_, first, n, q.data(), d.data(),
                               shape_.has_min ? m.data() : nullptr, out);
    return {};
  }

  const MergedRows& rows_;
  const kernels::Int4Shape shape_;
};

// How matrices are held: in 16 bits, or in 4 and groups of ModelConfig::int4_group; and who counts
// what is read of them.
struct MatrixForm {
  bool int4 = false;
  int int4_group = 32;
  Progress* progress = nullptr;
};

template <class A>
Status send_matrix(const MergedRows& rows, MatrixForm form, ThreadPool& pool, CudaMatrix<A>* out) {
  out->int4 = form.int4;
  out->K = rows.K();
  out->N = rows.N();
  auto send_bytes = [&](const void* from, size_t bytes) {
    out->data = DeviceMemory(bytes);
    cuda_check(cudaMemcpy(out->data.as(), from, bytes, cudaMemcpyHostToDevice));
  };
  if (!form.int4) {
    std::vector<A> converted = convert_rows<A>(rows, pool, form.progress);
    send_bytes(converted.data(), converted.size() * sizeof(A));
    return {};
  }
  if (out->K % kInt4Group != 0)
    return invalid(rows.tensors()[0]->name + ": rows of " + std::to_string(out->K) +
                   " weights are no whole number of groups of 32; use --quantization none");
  Int4Packer packer(rows, form.int4_group);
  out->shape = packer.shape();
  Result<std::vector<std::byte>> packed = packer.pack(pool, form.progress);
  if (!packed.ok()) return packed.status();
  send_bytes(packed->data(), packed->size());
  return {};
}

template <class A>
Status send_layer(const LayerWeights& w, int64_t D, MatrixForm form, ThreadPool& pool,
                  CudaLayer<A>* out) {
  out->attention_norm = send_floats({&w.attention_norm});
  out->ffn_norm = send_floats({&w.ffn_norm});
  out->qkv_bias = send_floats({&w.q_bias, &w.k_bias, &w.v_bias}, D / 2);
  Status s = send_matrix(MergedRows({&w.q, &w.k, &w.v}, D / 2), form, pool, &out->qkv);
  if (s.ok()) s = send_matrix(MergedRows({&w.o}), form, pool, &out->o);
  if (s.ok())
    s = send_matrix(MergedRows({&w.gate, &w.up}, w.gate.rows()), form, pool, &out->gate_up);
  if (s.ok()) s = send_matrix(MergedRows({&w.down}), form, pool, &out->down);
  return s;
}

}  // namespace

template <class A>
Status upload_model(const Model& model, const Model* embedding_of, const CudaOptions& options,
                    const Shard& shard, ThreadPool& pool, CudaModel<A>* out) {
  const ModelConfig c = shard_config(model.config, shard);
  const MatrixForm form{options.int4, c.int4_group, options.progress};
  out->L = c.n_layers;
  out->E = c.width;
  out->F = c.ffn_width;
  out->H = c.n_heads;
  out->G = c.n_kv_heads;
  out->D = c.head_width;
  out->sliding_window = static_cast<int32_t>(c.sliding_window);
  out->epsilon = c.norm_epsilon;
  RopeFrequencies rope = rope_frequencies(c);
  out->rope_factor = rope.attention_factor;
  out->rope_inverse = send<float>(rope.inverse);
  out->head_tokens = model.head_tokens;
  out->device_tokens = send<int32_t>(model.head_tokens);
  const Tensor head = shard_head(model.shares_head ? embedding_of->head : model.head, shard);
  out->head_rows = head.rows();
  out->V = model.head_tokens.empty() ? head.rows()
           : embedding_of            ? embedding_of->config.vocabulary_size
                                     : c.n_tokens;
  for (const LayerWeights& w : model.layers) {
    out->layers.emplace_back();
    ModelStorage columns;
    const LayerWeights part = shard_layer(w, model.config, shard, &columns);
    if (Status s = send_layer(part, out->D, form, pool, &out->layers.back()); !s.ok()) return s;
  }
  out->final_norm = send_floats({&model.final_norm});
  out->head_kind = model.head_kind;
  out->fc_bias = send_floats({&model.fc_bias});
  out->embedding_norm = send_floats({&model.embedding_norm});
  out->hidden_norm = send_floats({&model.hidden_norm});
  if (model.takes_hidden())
    if (Status s = send_matrix(MergedRows({&model.fc}), form, pool, &out->fc); !s.ok()) return s;
  const Tensor& embedding = (model.shares_embedding ? *embedding_of : model).embedding;
  out->embedding = send<A>(convert_rows<A>(MergedRows({&embedding}), pool, options.progress));
  out->embedding_rows = embedding.rows();
  const MatrixForm of_head{options.int4, head_int4_group(model, embedding_of), options.progress};
  return send_matrix(MergedRows({&head}), of_head, pool, &out->head);
}

template <class A>
Status upload_heads(const Model& model, const CudaOptions& options, ThreadPool& pool,
                    CudaHeadStack<A>* out) {
  out->E = model.config.width;
  out->V = model.config.vocabulary_size;
  const MatrixForm form{options.int4, model.config.int4_group, options.progress};
  for (const MedusaHead& h : model.medusa) {
    auto& head = out->heads.emplace_back();
    for (const MedusaBlock& b : h.blocks) {
      auto& block = head.blocks.emplace_back();
      block.bias = send_floats({&b.bias});
      if (Status s = send_matrix(MergedRows({&b.w}), form, pool, &block.w); !s.ok()) return s;
    }
    if (Status s = send_matrix(MergedRows({&h.out}), form, pool, &head.out); !s.ok()) return s;
  }
  return {};
}

template Status upload_heads(const Model&, const CudaOptions&, ThreadPool&, CudaHeadStack<f16>*);
template Status upload_heads(const Model&, const CudaOptions&, ThreadPool&, CudaHeadStack<bf16>*);
template Status upload_model(const Model&, const Model*, const CudaOptions&, const Shard&,
                             ThreadPool&, CudaModel<f16>*);
template Status upload_model(const Model&, const Model*, const CudaOptions&, const Shard&,
                             ThreadPool&, CudaModel<bf16>*);

}  // namespace pf
