// One block per row t. A thread takes 4 neighbouring values of every 1024, and the same ones in
// both passes: what it reads again stands in the L1, which is cheaper than holding a row of any
// width in registers.
#include "base/cuda.h"
#include "kernels/common/block_sum.cuh"
#include "kernels/common/check_aligned.h"
#include "kernels/common/row_norm.cuh"
#include "kernels/rms_norm.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = kNormThreads, kWidth = kNormWidth;

// grid (T), block (kThreads)
template <class A>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(A* y,            // [T, E]
                                                            const float* x,  // [T, E]
                                                            const float* w,  // [E]
                                                            int E, float epsilon) {
  const int64_t row = int64_t(blockIdx.x) * E;

  // 1. the sum of squares
  float squares = 0;
  for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth) {
    const auto a = load_pack<float, kWidth>(x + row + e);
    for (float v : a.v) squares = __fmaf_rn(v, v, squares);
  }
  const float scale = rsqrtf(block_sum<kThreads>(squares) / static_cast<float>(E) + epsilon);

  // 2. scale and write
  for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth) {
    store_normed(y + row + e, load_pack<float, kWidth>(x + row + e), scale, w + e);
  }
}

}  // namespace

template <class A>
void rms_norm(View<A, 2> y, View<const float, 2> x, View<const float, 1> w, float epsilon,
              cudaStream_t stream) {
  const auto [T, E] = x.shape;
  check(y.shape[0] == T && y.shape[1] == E && w.shape[0] == E,
        "rms_norm: the shapes of x, y and w differ");
  check(E > 0 && E % kWidth == 0 && E <= 1 << 30, "rms_norm: the width must be a multiple of 4");
  check(T >= 0 && T < 1ll << 31, "rms_norm: too many rows");
  check_aligned({y.data, x.data, w.data});
  if (T == 0) return;

  rms_norm_kernel<<<static_cast<unsigned>(T), kThreads, 0, stream>>>(y.data, x.data, w.data,
                                                                     static_cast<int>(E), epsilon);
  cuda_check(cudaGetLastError());
}

template void rms_norm(View<f16, 2>, View<const float, 2>, View<const float, 1>, float,
                       cudaStream_t);
template void rms_norm(View<bf16, 2>, View<const float, 2>, View<const float, 1>, float,
                       cudaStream_t);

}  // namespace pf::kernels
