// From a model's files to the device: matrices merged (QKV; gate and up), converted to the numbers
// of the kernels or packed to 4 bits, norms and biases as float.
#include <atomic>
#include <mutex>

#include "backend/cuda/cuda_heads.h"
#include "model/int4_rows.h"

namespace pf {
namespace {

template <class T>
DeviceBuffer<T> send(std::span<const T> values) {
  DeviceBuffer<T> out(static_cast<int64_t>(values.size()));
  if (!values.empty())
    cuda_check(cudaMemcpy(out.data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  return out;
}

DeviceBuffer<float> send_floats(std::initializer_list<const Tensor*> tensors) {
  std::vector<float> all;
  for (const Tensor* t : tensors) {
    if (t->empty()) continue;
    size_t begin = all.size();
    all.resize(begin + static_cast<size_t>(t->size()));
    dequantize_rows(*t, 0, t->rows(), all.data() + begin);
  }
  return send<float>(all);
}

void convert(float v, f16* out) { *out = to_f16(v); }
void convert(float v, bf16* out) { *out = to_bf16(v); }

using Tensors = std::initializer_list<const Tensor*>;

// All rows of the tensors, one behind the other, as A [N, K].
template <class A>
std::vector<A> convert_rows(Tensors tensors, ThreadPool& pool) {
  int64_t n = 0, K = (*tensors.begin())->cols();
  for (const Tensor* t : tensors) n += t->rows();
  std::vector<A> out(static_cast<size_t>(n * K));
  A* to = out.data();
  for (const Tensor* t : tensors) {
    pool.run([&](int thread) {
      std::vector<float> row(static_cast<size_t>(K));
      Range rows = split_range(t->rows(), 1, pool.size(), thread);
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        dequantize_rows(*t, r, 1, row.data());
        for (int64_t k = 0; k < K; ++k) convert(row[static_cast<size_t>(k)], to + r * K + k);
      }
    });
    to += t->rows() * K;
  }
  return out;
}

// The same packed for gemm_int4. Minimums everywhere as soon as one tensor has some.
class Int4Packer {
 public:
  explicit Int4Packer(Tensors tensors) : tensors_(tensors) {
    shape_.K = (*tensors.begin())->cols();
    for (const Tensor* t : tensors) {
      shape_.N += t->rows();
      shape_.has_min |= t->type != TensorType::kQ4_0;
    }
  }
  const kernels::Int4Shape& shape() const { return shape_; }

  Result<std::vector<std::byte>> pack(ThreadPool& pool) const {
    std::vector<std::byte> out(static_cast<size_t>(kernels::packed_int4_bytes(shape_)));
    std::mutex mutex;
    Status status;
    pool.run([&](int thread) {
      Range units = split_range(kernels::n_units(shape_), 1, pool.size(), thread);
      for (int64_t u = units.begin; u < units.end; ++u)
        if (Status s = pack_unit(u, out.data()); !s.ok()) {
          std::lock_guard lock(mutex);
          status = s;
        }
    });
    if (!status.ok()) return status;
    return out;
  }

 private:
  Status pack_unit(int64_t unit, std::byte* out) const {
    int64_t first = unit * 32, n = std::min<int64_t>(32, shape_.N - first);
    int64_t groups = shape_.K / kInt4Group;
    std::vector<uint8_t> q(static_cast<size_t>(n * shape_.K));
    std::vector<f16> d(static_cast<size_t>(n * groups)), m(d.size());
    for (int64_t r = 0; r < n; ++r) {
      int64_t row = first + r;
      const Tensor* tensor = nullptr;
      for (const Tensor* t : tensors_) {
        tensor = t;
        if (row < t->rows()) break;
        row -= t->rows();
      }
      Int4Row to{q.data() + r * shape_.K, d.data() + r * groups, m.data() + r * groups};
      if (Status s = read_int4_row(*tensor, row, to); !s.ok()) return s.within(tensor->name);
    }
    kernels::pack_int4_for_mma(shape_, first, n, q.data(), d.data(),
                               shape_.has_min ? m.data() : nullptr, out);
    return {};
  }

  std::vector<const Tensor*> tensors_;
  kernels::Int4Shape shape_;
};

template <class A>
Status send_matrix(Tensors tensors, bool int4, ThreadPool& pool, CudaMatrix<A>* out) {
  out->int4 = int4;
  out->K = (*tensors.begin())->cols();
  out->N = 0;
  for (const Tensor* t : tensors) out->N += t->rows();
  auto send_bytes = [&](const void* from, size_t bytes) {
    out->data = DeviceMemory(bytes);
    cuda_check(cudaMemcpy(out->data.as(), from, bytes, cudaMemcpyHostToDevice));
  };
  if (!int4) {
    std::vector<A> rows = convert_rows<A>(tensors, pool);
    send_bytes(rows.data(), rows.size() * sizeof(A));
    return {};
  }
  if (out->K % kInt4Group != 0)
    return invalid((*tensors.begin())->name + ": rows of " + std::to_string(out->K) +
                   " weights are no whole number of groups of 32; use --quantization none");
  Int4Packer packer(tensors);
  out->shape = packer.shape();
  Result<std::vector<std::byte>> packed = packer.pack(pool);
  if (!packed.ok()) return packed.status();
  send_bytes(packed->data(), packed->size());
  return {};
}

template <class A>
Status send_layer(const LayerWeights& w, bool int4, ThreadPool& pool, CudaLayer<A>* out) {
  out->attention_norm = send_floats({&w.attention_norm});
  out->ffn_norm = send_floats({&w.ffn_norm});
  out->qkv_bias = send_floats({&w.q_bias, &w.k_bias, &w.v_bias});
  Status s = send_matrix({&w.q, &w.k, &w.v}, int4, pool, &out->qkv);
  if (s.ok()) s = send_matrix({&w.o}, int4, pool, &out->o);
  if (s.ok()) s = send_matrix({&w.gate, &w.up}, int4, pool, &out->gate_up);
  if (s.ok()) s = send_matrix({&w.down}, int4, pool, &out->down);
  return s;
}

}  // namespace

template <class A>
Status upload_model(const Model& model, const Model* embedding_of, const CudaOptions& options,
                    ThreadPool& pool, CudaModel<A>* out) {
  const ModelConfig& c = model.config;
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
  const Tensor& head = model.shares_head ? embedding_of->head : model.head;
  out->head_rows = head.rows();
  out->V = model.head_tokens.empty() ? head.rows()
           : embedding_of            ? embedding_of->config.vocabulary_size
                                     : c.n_tokens;
  for (const LayerWeights& w : model.layers) {
    out->layers.emplace_back();
    if (Status s = send_layer(w, options.int4, pool, &out->layers.back()); !s.ok()) return s;
  }
  out->final_norm = send_floats({&model.final_norm});
  out->head_kind = model.head_kind;
  out->fc_bias = send_floats({&model.fc_bias});
  out->embedding_norm = send_floats({&model.embedding_norm});
  out->hidden_norm = send_floats({&model.hidden_norm});
  if (model.takes_hidden())
    if (Status s = send_matrix({&model.fc}, options.int4, pool, &out->fc); !s.ok()) return s;
  const Tensor& embedding = (model.shares_embedding ? *embedding_of : model).embedding;
  out->embedding = send<A>(convert_rows<A>({&embedding}, pool));
  out->embedding_rows = embedding.rows();
  return send_matrix({&head}, options.int4, pool, &out->head);
}

template <class A>
Status upload_heads(const Model& model, bool int4, ThreadPool& pool, CudaHeadStack<A>* out) {
  out->E = model.config.width;
  out->V = model.config.vocabulary_size;
  for (const MedusaHead& h : model.medusa) {
    auto& head = out->heads.emplace_back();
    for (const MedusaBlock& b : h.blocks) {
      auto& block = head.blocks.emplace_back();
      block.bias = send_floats({&b.bias});
      if (Status s = send_matrix({&b.w}, int4, pool, &block.w); !s.ok()) return s;
    }
    if (Status s = send_matrix({&h.out}, int4, pool, &head.out); !s.ok()) return s;
  }
  return {};
}

template Status upload_heads(const Model&, bool, ThreadPool&, CudaHeadStack<f16>*);
template Status upload_heads(const Model&, bool, ThreadPool&, CudaHeadStack<bf16>*);
template Status upload_model(const Model&, const Model*, const CudaOptions&, ThreadPool&,
                             CudaModel<f16>*);
template Status upload_model(const Model&, const Model*, const CudaOptions&, ThreadPool&,
                             CudaModel<bf16>*);

}  // namespace pf
