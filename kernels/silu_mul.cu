// One thread makes 8 neighbouring outputs, so that all three streams move 16 bytes at a time. The
// threads are numbered through the rows: few wide rows and many narrow ones fill the device alike.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/half.cuh"
#include "kernels/silu_mul.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;  // values of a 16-byte load

// grid (ceil(T * n / kThreads)), block (kThreads)
template <class A>
__global__ void __launch_bounds__(kThreads) silu_mul_kernel(A* y,              // [T, F]
                                                            const A* gate_up,  // [T, 2 F]
                                                            unsigned T,
                                                            unsigned n) {  // F / kWidth
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= T * n) return;
  const int64_t t = i / n, f = i % n * kWidth, F = int64_t(n) * kWidth;
  const auto gate = load_pack<A, kWidth>(gate_up + t * 2 * F + f),
             up = load_pack<A, kWidth>(gate_up + t * 2 * F + F + f);
  Pack<A, kWidth> out;
  for (int k = 0; k < kWidth; ++k) {
    const float g = widen(gate.v[k]);
    out.v[k] = narrow<A>(g / (1 + __expf(-g)) * widen(up.v[k]));
  }
  store_pack(y + t * F + f, out);
}

}  // namespace

template <class A>
void silu_mul(View<A, 2> y, View<const A, 2> gate_up, cudaStream_t stream) {
  const auto [T, F] = y.shape;
  check(gate_up.shape[0] == T && gate_up.shape[1] == 2 * F,
        "silu_mul: gate_up's shape is not [T, 2 F]");
  check(F > 0 && F % kWidth == 0 && F < 1ll << 31, "silu_mul: F must be a multiple of 8");
  const int64_t n = F / kWidth;
  check(T >= 0 && T * n <= 1ll << 31, "silu_mul: too many rows");
  check_aligned({y.data, gate_up.data});
  if (T == 0) return;

  const auto n_blocks = static_cast<unsigned>((T * n + kThreads - 1) / kThreads);
  silu_mul_kernel<<<n_blocks, kThreads, 0, stream>>>(y.data, gate_up.data, static_cast<unsigned>(T),
                                                     static_cast<unsigned>(n));
  cuda_check(cudaGetLastError());
}

template void silu_mul(View<f16, 2>, View<const f16, 2>, cudaStream_t);
template void silu_mul(View<bf16, 2>, View<const bf16, 2>, cudaStream_t);

}  // namespace pf::kernels
