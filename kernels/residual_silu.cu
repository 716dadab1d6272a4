// One thread makes 4 neighbouring outputs, so that the float stream moves 16 bytes at a time and no
// warp reads half of a sector; the threads are numbered through the rows, as in silu_mul.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/half.cuh"
#include "kernels/residual_silu.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // values of a 16-byte load of the product

// grid (ceil(n / kThreads)), block (kThreads)
template <class A>
__global__ void __launch_bounds__(kThreads) residual_silu_kernel(A* y,                  // [T, E]
                                                                 const A* x,            // [T, E]
                                                                 const float* product,  // [T, E]
                                                                 unsigned n) {  // T E / kWidth
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const int64_t at = int64_t(i) * kWidth;
  const auto in = load_pack<A, kWidth>(x + at);
  const auto inside = load_pack<float, kWidth>(product + at);
  Pack<A, kWidth> out;
  for (int k = 0; k < kWidth; ++k) {
    const float v = inside.v[k];
    out.v[k] = narrow<A>(widen(in.v[k]) + v / (1 + __expf(-v)));
  }
  store_pack(y + at, out);
}

}  // namespace

template <class A>
void residual_silu(View<A, 2> y, View<const A, 2> x, View<const float, 2> product,
                   cudaStream_t stream) {
  const auto [T, E] = y.shape;
  check(x.shape[0] == T && x.shape[1] == E && product.shape[0] == T && product.shape[1] == E,
        "residual_silu: shapes differ");
  check(E > 0 && E % kWidth == 0, "residual_silu: E must be a multiple of 4");
  check(T >= 0 && T * E <= 1ll << 31, "residual_silu: too many rows");
  check_aligned({y.data, x.data, product.data});
  if (T == 0) return;

  const int64_t n = T * E / kWidth;
  residual_silu_kernel<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0,
                         stream>>>(y.data, x.data, product.data, static_cast<unsigned>(n));
  cuda_check(cudaGetLastError());
}

template void residual_silu(View<f16, 2>, View<const f16, 2>, View<const float, 2>, cudaStream_t);
template void residual_silu(View<bf16, 2>, View<const bf16, 2>, View<const float, 2>, cudaStream_t);

}  // namespace pf::kernels
