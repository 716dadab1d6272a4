#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/limits.h"
#include "backend/cuda/shard.h"
#include "kernels/gemm_fp16.h"
#include "kernels/gemm_int4.h"

namespace pf {

// [N, K] on the device, as 16-bit numbers of type A or packed to 4 bits.
template <class A>
struct CudaMatrix {
  int64_t N = 0, K = 0;
  bool int4 = false;
  kernels::Int4Shape shape;  // where int4
  DeviceMemory data;

  int64_t bytes() const { return static_cast<int64_t>(data.bytes()); }
};

// y = x w^T, one order of summation for every row count (kernels/gemm_*.h).
template <class A>
void multiply(const kernels::GemmOutput<A>& y, View<const A, 2> x, const CudaMatrix<A>& w,
              cudaStream_t stream) {
  if (w.int4)
    kernels::gemm_int4(y, x, {w.data.as(), w.shape}, stream);
  else
    kernels::gemm_fp16(y, x, View<const A, 2>{w.data.template as<A>(), {w.N, w.K}}, stream);
}
template <class A, class Y>
void multiply(View<Y, 2> y, View<const A, 2> x, const CudaMatrix<A>& w,
              kernels::GemmEpilogue epilogue, cudaStream_t stream) {
  multiply(kernels::GemmOutput<A>::rows(y, epilogue), x, w, stream);
}

template <class A>
struct CudaLayer {
  DeviceBuffer<float> attention_norm, ffn_norm;  // [E]; the first may hold nothing: no norm
  // Heads paired as kernels/gemm.h says.
  DeviceBuffer<float> qkv_bias;  // [(H + 2 G) D], or nothing
  CudaMatrix<A> qkv;             // [(H + 2 G) D, E]; an EAGLE-3 head's [.., 2 E]
  CudaMatrix<A> o;               // [E, H D]
  CudaMatrix<A> gate_up;         // [2 F, E], paired (kernels/gemm.h)
  CudaMatrix<A> down;            // [E, F]
};

template <class A>
struct CudaModel {
  int64_t L = 0, E = 0, F = 0, H = 0, G = 0, D = 0;
  int64_t V = 0;          // width of the logits as sampling sees them
  int64_t head_rows = 0;  // of the head; below V where the vocabulary is reduced
  int32_t sliding_window = 0;
  float epsilon = 0, rope_factor = 1;
  DeviceBuffer<float> rope_inverse;     // [D / 2]
  DeviceBuffer<A> embedding;            // [V', E]
  int64_t embedding_rows = 0;           // V'
  std::vector<CudaLayer<A>> layers;     // [L]
  DeviceBuffer<float> final_norm;       // [E], or nothing: no norm
  CudaMatrix<A> head;                   // [head_rows, E]
  std::vector<int32_t> head_tokens;     // row -> token; empty: the row is the token
  DeviceBuffer<int32_t> device_tokens;  // the same on the device

  // A head over hidden states (model/model.h): slots and hidden states as in cpu_model.h.
  HeadKind head_kind = HeadKind::kNone;
  CudaMatrix<A> fc;                                 // [E, 2 E] or [E, hidden width]
  DeviceBuffer<float> fc_bias;                      // [E], or nothing
  DeviceBuffer<float> embedding_norm, hidden_norm;  // [E], or nothing: no norm

  bool takes_hidden() const { return head_kind != HeadKind::kNone; }
  int32_t first_position() const { return takes_hidden() ? 1 : 0; }  // slot 0 stays empty
  bool reads_wide(int64_t layer) const { return layer == 0 && head_kind == HeadKind::kEagle3; }
  int64_t qkv_width() const { return (H + 2 * G) * D; }
  int64_t bytes_per_step() const {  // of the matrices that one decode step reads
    int64_t total = head.bytes() + fc.bytes();
    for (const CudaLayer<A>& l : layers)
      total += l.qkv.bytes() + l.o.bytes() + l.gate_up.bytes() + l.down.bytes();
    return total;
  }
};

// What a model says of itself, whoever runs it: of one device, and with V tokens in all.
template <class A>
void set_info(const CudaModel<A>& model, const CudaOptions& options, int64_t V, BackendInfo* info) {
  info->dtype = weights_name(options);
  info->kv_dtype = kv_name(options);
  info->vocabulary_size = V;
  info->max_context = options.max_context;
  info->bytes_per_step = model.bytes_per_step();
  info->weight_bytes = info->bytes_per_step + static_cast<int64_t>(model.embedding.bytes());
}

// To the present device: one rank's part, whose logits are a stretch of the vocabulary, or all.
template <class A>
Status upload_model(const Model& model, const Model* embedding_of, const CudaOptions& options,
                    const Shard& shard, ThreadPool& pool, CudaModel<A>* out);

// The backend of a model whose weights are on the device already; of one that n devices share.
template <class A>
std::unique_ptr<Backend> make_backend_of(CudaModel<A> model, const CudaOptions& options);
template <class A>
std::unique_ptr<Backend> make_sharded_backend_of(std::vector<CudaModel<A>> by_rank,
                                                 int64_t head_rows, const CudaOptions& options);

}  // namespace pf
