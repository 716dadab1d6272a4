// One block per row and half: x = 0 for the embedding, 1 for the hidden state. As in rms_norm.cu a
// thread takes 4 neighbouring values of every 1024 and reads them again from the L1.
#include "base/cuda.h"
#include "kernels/common/block_sum.cuh"
#include "kernels/common/half.cuh"
#include "kernels/common/tables.cuh"
#include "kernels/join_features.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // values per load: 8 or 16 bytes

// Half a row. All threads of a block have the same x and w.
template <class A, class X>
__device__ void write_half(A* y,            // [E]
                           const X* x,      // [E] or null: zeros
                           const float* w,  // [E] or null: no norm
                           int E, float epsilon) {
  float scale = 1;
  if (x != nullptr && w != nullptr) {
    float squares = 0;
    for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth)
      for (X v : load_pack<X, kWidth>(x + e).v) squares = __fmaf_rn(widen(v), widen(v), squares);
    scale = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(E) + epsilon);
  }
  for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth) {
    Pack<A, kWidth> out{};
    if (x != nullptr) {
      const auto in = load_pack<X, kWidth>(x + e);
      Pack<float, kWidth> g{1, 1, 1, 1};
      if (w != nullptr) g = load_pack<float, kWidth>(w + e);
      for (int i = 0; i < kWidth; ++i) out.v[i] = narrow<A>(widen(in.v[i]) * scale * g.v[i]);
    }
    store_pack(y + e, out);
  }
}

// grid (2, T), block (kThreads)
template <class A, class S>
__global__ void __launch_bounds__(kThreads)
    join_features_kernel(A* y,                   // [T, 2 E]
                         const A* embedding,     // [V, E]
                         const int32_t* tokens,  // [T]
                         const __grid_constant__ Tables<S> states,
                         const int32_t* index,      // [T] or null
                         const float* w_embedding,  // [E] or null
                         const float* w_state,      // [E] or null
                         int64_t V, int E, float epsilon) {
  const int64_t row = blockIdx.y;
  y += (2 * row + blockIdx.x) * E;
  if (blockIdx.x == 0) {
    const int32_t token = tokens[row];
    if (token >= V) __trap();
    write_half(y, token < 0 ? nullptr : embedding + int64_t(token) * E, w_embedding, E, epsilon);
  } else {
    write_half(y, states.row(index == nullptr ? row : index[row], E), w_state, E, epsilon);
  }
}

}  // namespace

template <class A, class S>
void join_features(View<A, 2> y, View<const A, 2> embedding, View<const int32_t, 1> tokens,
                   const View<const S, 2> (&states)[3], View<const int32_t, 1> index,
                   const float* w_embedding, const float* w_state, float epsilon,
                   cudaStream_t stream) {
  const int64_t T = y.shape[0], E = embedding.shape[1];
  check(y.shape[1] == 2 * E && tokens.shape[0] == T && index.shape[0] == T,
        "join_features: the shapes of y, embedding, tokens and index differ");
  check(E > 0 && E % kWidth == 0 && E <= 1 << 29,
        "join_features: the width must be a multiple of 4");
  check(T >= 0 && T <= 65535, "join_features: too many rows");
  check_aligned({y.data, embedding.data, w_embedding, w_state});
  const Tables<S> tables = tables_of(states, E);
  if (T == 0) return;

  join_features_kernel<<<dim3(2, static_cast<unsigned>(T)), kThreads, 0, stream>>>(
      y.data, embedding.data, tokens.data, tables, index.data, w_embedding, w_state,
      embedding.shape[0], static_cast<int>(E), epsilon);
  cuda_check(cudaGetLastError());
}

template void join_features(View<f16, 2>, View<const f16, 2>, View<const int32_t, 1>,
                            const View<const f16, 2> (&)[3], View<const int32_t, 1>, const float*,
                            const float*, float, cudaStream_t);
template void join_features(View<bf16, 2>, View<const bf16, 2>, View<const int32_t, 1>,
                            const View<const bf16, 2> (&)[3], View<const int32_t, 1>, const float*,
                            const float*, float, cudaStream_t);
template void join_features(View<f16, 2>, View<const f16, 2>, View<const int32_t, 1>,
                            const View<const float, 2> (&)[3], View<const int32_t, 1>, const float*,
                            const float*, float, cudaStream_t);
template void join_features(View<bf16, 2>, View<const bf16, 2>, View<const int32_t, 1>,
                            const View<const float, 2> (&)[3], View<const int32_t, 1>, const float*,
                            const float*, float, cudaStream_t);

}  // namespace pf::kernels
