// One block per row, its threads and sums those of rms_norm.cu: so a row has the same norm. What a
// thread wrote it reads again itself.
#include "base/cuda.h"
#include "kernels/common/block_sum.cuh"
#include "kernels/common/check_aligned.h"
#include "kernels/common/rope_angle.cuh"
#include "kernels/common/row_norm.cuh"
#include "kernels/pass_ends.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = kNormThreads, kWidth = kNormWidth, kStep = kThreads * kWidth;

template <class A>
struct StartParams {
  float* residual;           // [T, E]
  A* normed;                 // [T, E]
  float* angles;             // [T, 2, D / 2]
  const A* embedding;        // [V, E]
  const int32_t* tokens;     // [T]
  const int32_t* positions;  // [T]
  const float* norm;         // [E]
  const float* inverse;      // [D / 2]
  int64_t V;
  int E, half;
  float epsilon, factor;
};

// grid (T), block (kThreads)
template <class A>
__global__ void __launch_bounds__(kThreads)
    start_pass_kernel(const __grid_constant__ StartParams<A> p) {
  const int t = blockIdx.x;
  const int32_t token = p.tokens[t];
  if (token >= p.V) __trap();
  const A* from = p.embedding + int64_t(token) * p.E;
  float* x = p.residual + int64_t(t) * p.E;

  // 1. the row, and its sum of squares
  float squares = 0;
  for (int e = threadIdx.x * kWidth; e < p.E; e += kStep) {
    Pack<float, kWidth> a{};
    if (token >= 0) {
      const auto in = load_pack<A, kWidth>(from + e);
      for (int i = 0; i < kWidth; ++i) a.v[i] = widen(in.v[i]);
    }
    store_pack(x + e, a);
    for (float v : a.v) squares = __fmaf_rn(v, v, squares);
  }
  const float scale = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(p.E) + p.epsilon);

  // 2. its norm
  A* y = p.normed + int64_t(t) * p.E;
  for (int e = threadIdx.x * kWidth; e < p.E; e += kStep)
    store_normed(y + e, load_pack<float, kWidth>(x + e), scale, p.norm + e);

  // 3. its angles
  float* at = p.angles + int64_t(t) * 2 * p.half;
#pragma unroll 1  // mostly one trip of a part of the threads
  for (int i = threadIdx.x; i < p.half; i += kThreads) {
    const float2 angle = rope_angle(p.positions[t], p.inverse[i], p.factor);
    at[i] = angle.x;
    at[p.half + i] = angle.y;
  }
}

// grid (R), block (kThreads)
template <class A>
__global__ void __launch_bounds__(kThreads) norm_picked_kernel(A* y,                  // [R, E]
                                                               const float* x,        // [T, E]
                                                               const int32_t* index,  // [R]
                                                               const float* w,        // [E]
                                                               int64_t T, int E, float epsilon) {
  const int32_t from = index[blockIdx.x];
  if (from >= T) __trap();
  x += int64_t(from) * E;
  y += int64_t(blockIdx.x) * E;
  auto load = [&](int e) {
    return from < 0 ? Pack<float, kWidth>{} : load_pack<float, kWidth>(x + e);
  };
  float squares = 0;
  for (int e = threadIdx.x * kWidth; e < E; e += kStep)
    for (float v : load(e).v) squares = __fmaf_rn(v, v, squares);
  const float scale = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(E) + epsilon);
  for (int e = threadIdx.x * kWidth; e < E; e += kStep) store_normed(y + e, load(e), scale, w + e);
}

void check_rows(int64_t n, int64_t E) {
  check(E > 0 && E % kWidth == 0 && E <= 1 << 30, "pass: the width must be a multiple of 4");
  check(n >= 0 && n < 1ll << 31, "pass: too many rows");
}

}  // namespace

template <class A>
void start_pass(const PassStart<A>& p, cudaStream_t stream) {
  const auto [T, E] = p.residual.shape;
  const int64_t half = p.inverse.shape[0];
  check(p.normed.shape[0] == T && p.angles.shape[0] == T && p.tokens.shape[0] == T &&
            p.positions.shape[0] == T,
        "start_pass: a token, a position and places for what comes of them for every row");
  check(p.normed.shape[1] == E && p.embedding.shape[1] == E && p.norm.shape[0] == E &&
            p.angles.shape[1] == 2 && p.angles.shape[2] == half && half > 0,
        "start_pass: the widths differ");
  check_rows(T, E);
  check_aligned({p.residual.data, p.normed.data, p.embedding.data, p.norm.data});
  if (T == 0) return;

  start_pass_kernel<A><<<static_cast<unsigned>(T), kThreads, 0, stream>>>(
      {p.residual.data, p.normed.data, p.angles.data, p.embedding.data, p.tokens.data,
       p.positions.data, p.norm.data, p.inverse.data, p.embedding.shape[0], static_cast<int>(E),
       static_cast<int>(half), p.epsilon, p.rope_factor});
  cuda_check(cudaGetLastError());
}

template <class A>
void norm_picked_rows(View<A, 2> y, View<const float, 2> x, View<const int32_t, 1> index,
                      View<const float, 1> w, float epsilon, cudaStream_t stream) {
  const auto [R, E] = y.shape;
  check(index.shape[0] == R && x.shape[1] == E && w.shape[0] == E,
        "norm_picked_rows: the shapes of y, x, index and w differ");
  check_rows(R, E);
  check_aligned({y.data, x.data, w.data});
  if (R == 0) return;

  norm_picked_kernel<A><<<static_cast<unsigned>(R), kThreads, 0, stream>>>(
      y.data, x.data, index.data, w.data, x.shape[0], static_cast<int>(E), epsilon);
  cuda_check(cudaGetLastError());
}

template void start_pass(const PassStart<f16>&, cudaStream_t);
template void start_pass(const PassStart<bf16>&, cudaStream_t);
template void norm_picked_rows(View<f16, 2>, View<const float, 2>, View<const int32_t, 1>,
                               View<const float, 1>, float, cudaStream_t);
template void norm_picked_rows(View<bf16, 2>, View<const float, 2>, View<const int32_t, 1>,
                               View<const float, 1>, float, cudaStream_t);

}  // namespace pf::kernels
