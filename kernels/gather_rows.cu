// One block per row that is written; a thread moves 4 neighbouring values of every 1024.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/half.cuh"
#include "kernels/common/tables.cuh"
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

// grid (n), block (kThreads)
template <class From, class To>
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(To* y,                // [Ty, E]
                                                             const From* x,        // [Tx, E]
                                                             const int32_t* from,  // [n]
                                                             const int32_t* to,    // [n]
                                                             int64_t Tx, int64_t Ty, int E) {
  const int32_t source = from[blockIdx.x], place = to[blockIdx.x];
  if (source < 0) return;
  if (source >= Tx || place < 0 || place >= Ty) __trap();
  y += int64_t(place) * E;
  x += int64_t(source) * E;
  for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth) {
    const auto in = load_pack<From, kWidth>(x + e);
    Pack<To, kWidth> out;
    for (int i = 0; i < kWidth; ++i) out.v[i] = narrow<To>(widen(in.v[i]));
    store_pack(y + e, out);
  }
}

// grid (T), block (kThreads)
template <class A>
__global__ void __launch_bounds__(kThreads)
    gather_joined_kernel(A* y,  // [T, E]
                         const __grid_constant__ Tables<A> t,
                         const int32_t* index,  // [T]
                         int E) {
  const A* x = t.row(index[blockIdx.x], E);
  y += int64_t(blockIdx.x) * E;
  for (int e = threadIdx.x * kWidth; e < E; e += kThreads * kWidth) {
    Pack<A, kWidth> out{};
    if (x != nullptr) out = load_pack<A, kWidth>(x + e);
    store_pack(y + e, out);
  }
}

void check_width(int64_t E) {
  check(E > 0 && E % kWidth == 0 && E <= 1 << 30, "rows: the width must be a multiple of 4");
}

}  // namespace

template <class From, class To>
void gather_rows(View<To, 2> y, View<const From, 2> x, View<const int32_t, 1> index,
                 cudaStream_t stream) {
  const auto [T, E] = y.shape;
  check(x.shape[1] == E && index.shape[0] == T, "gather_rows: the shapes of x, y and index differ");
  check_width(E);
  check(T >= 0 && T < 1ll << 31, "gather_rows: too many rows");
  check_aligned({y.data, x.data});
  if (T == 0) return;

  gather_rows_kernel<<<static_cast<unsigned>(T), kThreads, 0, stream>>>(
      y.data, x.data, index.data, x.shape[0], static_cast<int>(E));
  cuda_check(cudaGetLastError());
}

template <class From, class To>
void copy_rows(View<To, 2> y, View<const From, 2> x, View<const int32_t, 1> from,
               View<const int32_t, 1> to, cudaStream_t stream) {
  const int64_t E = y.shape[1], n = from.shape[0];
  check(x.shape[1] == E && to.shape[0] == n, "copy_rows: the shapes of x, y, from and to differ");
  check_width(E);
  check(n >= 0 && n < 1ll << 31, "copy_rows: too many rows");
  check_aligned({y.data, x.data});
  if (n == 0) return;

  copy_rows_kernel<<<static_cast<unsigned>(n), kThreads, 0, stream>>>(
      y.data, x.data, from.data, to.data, x.shape[0], y.shape[0], static_cast<int>(E));
  cuda_check(cudaGetLastError());
}

template <class A>
void gather_joined(View<A, 2> y, const View<const A, 2> (&x)[3], View<const int32_t, 1> index,
                   cudaStream_t stream) {
  const auto [T, E] = y.shape;
  check_width(E);
  check(index.shape[0] == T, "gather_joined: the shapes of y and index differ");
  check(T >= 0 && T < 1ll << 31, "gather_joined: too many rows");
  check_aligned({y.data});
  const Tables<A> tables = tables_of(x, E);
  if (T == 0) return;

  gather_joined_kernel<<<static_cast<unsigned>(T), kThreads, 0, stream>>>(
      y.data, tables, index.data, static_cast<int>(E));
  cuda_check(cudaGetLastError());
}

template void gather_rows(View<float, 2>, View<const f16, 2>, View<const int32_t, 1>, cudaStream_t);
template void gather_rows(View<float, 2>, View<const bf16, 2>, View<const int32_t, 1>,
                          cudaStream_t);
template void gather_rows(View<float, 2>, View<const float, 2>, View<const int32_t, 1>,
                          cudaStream_t);
template void gather_rows(View<f16, 2>, View<const f16, 2>, View<const int32_t, 1>, cudaStream_t);
template void gather_rows(View<bf16, 2>, View<const bf16, 2>, View<const int32_t, 1>, cudaStream_t);

template void copy_rows(View<float, 2>, View<const float, 2>, View<const int32_t, 1>,
                        View<const int32_t, 1>, cudaStream_t);
template void copy_rows(View<f16, 2>, View<const float, 2>, View<const int32_t, 1>,
                        View<const int32_t, 1>, cudaStream_t);
template void copy_rows(View<bf16, 2>, View<const float, 2>, View<const int32_t, 1>,
                        View<const int32_t, 1>, cudaStream_t);
template void copy_rows(View<f16, 2>, View<const f16, 2>, View<const int32_t, 1>,
                        View<const int32_t, 1>, cudaStream_t);
template void copy_rows(View<bf16, 2>, View<const bf16, 2>, View<const int32_t, 1>,
                        View<const int32_t, 1>, cudaStream_t);
template void gather_joined(View<f16, 2>, const View<const f16, 2> (&)[3], View<const int32_t, 1>,
                            cudaStream_t);
template void gather_joined(View<bf16, 2>, const View<const bf16, 2> (&)[3], View<const int32_t, 1>,
                            cudaStream_t);

}  // namespace pf::kernels
