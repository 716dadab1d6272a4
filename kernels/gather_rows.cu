// One block per output row; a thread moves 4 neighbouring values of every 1024.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/half.cuh"
#include "kernels/gather_rows.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // values per load: 8 or 16 bytes

// grid (T), block (kThreads)
template <class From, class To>
__global__ void __launch_bounds__(kThreads) gather_rows_kernel(To* y,                 // [T, E]
                                                               const From* x,         // [V, E]
                                                               const int32_t* index,  // [T]
                                                               int64_t V, int E) {
  const int32_t from = index[blockIdx.x];
  if (from >= V) __trap();
  y += int64_t(blockIdx.x) * E;
  x += int64_t(from) * E;
  for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth) {
    Pack<To, kWidth> out{};
    if (from >= 0) {
      const auto in = load_pack<From, kWidth>(x + e);
      for (int i = 0; i < kWidth; ++i) out.v[i] = narrow<To>(widen(in.v[i]));
    }
    store_pack(y + e, out);
  }
}

}  // namespace

template <class From, class To>
void gather_rows(View<To, 2> y, View<const From, 2> x, View<const int32_t, 1> index,
                 cudaStream_t stream) {
  const auto [T, E] = y.shape;
  check(x.shape[1] == E && index.shape[0] == T, "gather_rows: the shapes of x, y and index differ");
  check(E > 0 && E % kWidth == 0 && E <= 1 << 30, "gather_rows: the width must be a multiple of 4");
  check(T >= 0 && T < 1ll << 31, "gather_rows: too many rows");
  check_aligned({y.data, x.data});
  if (T == 0) return;

  gather_rows_kernel<<<static_cast<unsigned>(T), kThreads, 0, stream>>>(
      y.data, x.data, index.data, x.shape[0], static_cast<int>(E));
  cuda_check(cudaGetLastError());
}

template void gather_rows(View<float, 2>, View<const f16, 2>, View<const int32_t, 1>, cudaStream_t);
template void gather_rows(View<float, 2>, View<const bf16, 2>, View<const int32_t, 1>,
                          cudaStream_t);
template void gather_rows(View<float, 2>, View<const float, 2>, View<const int32_t, 1>,
                          cudaStream_t);
template void gather_rows(View<f16, 2>, View<const f16, 2>, View<const int32_t, 1>, cudaStream_t);
template void gather_rows(View<bf16, 2>, View<const bf16, 2>, View<const int32_t, 1>, cudaStream_t);

}  // namespace pf::kernels
