// One block per row t. A thread takes 4 neighbouring values of every 1024, and the same ones in
// both passes: what it reads again stands in the L1 (and what it wrote is its own), which is
// cheaper than holding a row of any width in registers.
#include <type_traits>

#include "base/cuda.h"
#include "kernels/common/block_sum.cuh"
#include "kernels/common/check_aligned.h"
#include "kernels/common/row_norm.cuh"
#include "kernels/rms_norm.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = kNormThreads, kWidth = kNormWidth;

// grid (T), block (kThreads). Where X may be written, x += the sum of the partials first.
template <class A, class X>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(A* y,                   // [T, E]
                    X* x,                   // [T, E]; X is float or const float
                    const float* partials,  // [n, T, E]
                    const float* w,         // [E]
                    int n, int E, float epsilon) {
  const int64_t row = int64_t(blockIdx.x) * E, plane = int64_t(gridDim.x) * E;

  // 1. the sum of squares, of the new x where it changes
  float squares = 0;
  for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth) {
    auto a = load_pack<float, kWidth>(x + row + e);
    if constexpr (!std::is_const_v<X>) {
      auto sum = load_pack<float, kWidth>(partials + row + e);
#pragma unroll 1
      for (int r = 1; r < n; ++r) {
        auto part = load_pack<float, kWidth>(partials + r * plane + row + e);
        for (int i = 0; i < kWidth; ++i) sum.v[i] += part.v[i];
      }
      for (int i = 0; i < kWidth; ++i) a.v[i] += sum.v[i];
      store_pack(x + row + e, a);
    }
    for (float v : a.v) squares = __fmaf_rn(v, v, squares);
  }
  const float scale = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(E) + epsilon);

  // 2. scale and write
  for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth) {
    store_normed(y + row + e, load_pack<float, kWidth>(x + row + e), scale, w + e);
  }
}

void check_shapes(int64_t y_T, int64_t y_E, int64_t T, int64_t E, int64_t w_E) {
  check(y_T == T && y_E == E && w_E == E, "rms_norm: the shapes of x, y and w differ");
  check(E > 0 && E % kWidth == 0 && E <= 1 << 30, "rms_norm: the width must be a multiple of 4");
  check(T >= 0 && T < 1ll << 31, "rms_norm: too many rows");
}

}  // namespace

template <class A>
void rms_norm(View<A, 2> y, View<const float, 2> x, View<const float, 1> w, float epsilon,
              cudaStream_t stream) {
  const auto [T, E] = x.shape;
  check_shapes(y.shape[0], y.shape[1], T, E, w.shape[0]);
  check_aligned({y.data, x.data, w.data});
  if (T == 0) return;

  rms_norm_kernel<<<static_cast<unsigned>(T), kThreads, 0, stream>>>(
      y.data, x.data, static_cast<const float*>(nullptr), w.data, 0, static_cast<int>(E), epsilon);
  cuda_check(cudaGetLastError());
}

template <class A>
void add_rms_norm(View<A, 2> y, View<float, 2> x, View<const float, 3> partials,
                  View<const float, 1> w, float epsilon, cudaStream_t stream) {
  const auto [T, E] = x.shape;
  check_shapes(y.shape[0], y.shape[1], T, E, w.shape[0]);
  check(partials.shape[0] >= 1 && partials.shape[0] < 1 << 16 && partials.shape[1] == T &&
            partials.shape[2] == E,
        "add_rms_norm: the partials' shape is not [n, T, E]");
  check_aligned({y.data, x.data, partials.data, w.data});
  if (T == 0) return;

  rms_norm_kernel<<<static_cast<unsigned>(T), kThreads, 0, stream>>>(
      y.data, x.data, partials.data, w.data, static_cast<int>(partials.shape[0]),
      static_cast<int>(E), epsilon);
  cuda_check(cudaGetLastError());
}

template void rms_norm(View<f16, 2>, View<const float, 2>, View<const float, 1>, float,
                       cudaStream_t);
template void rms_norm(View<bf16, 2>, View<const float, 2>, View<const float, 1>, float,
                       cudaStream_t);
template void add_rms_norm(View<f16, 2>, View<float, 2>, View<const float, 3>, View<const float, 1>,
                           float, cudaStream_t);
template void add_rms_norm(View<bf16, 2>, View<float, 2>, View<const float, 3>,
                           View<const float, 1>, float, cudaStream_t);

}  // namespace pf::kernels
