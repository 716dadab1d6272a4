// One thread makes 4 neighbouring outputs of 8 neighbours, whose 16 bytes it loads at once. The
// threads are numbered through the rows: few wide rows and many narrow ones fill the device alike.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/half.cuh"
#include "kernels/common/silu.cuh"
#include "kernels/silu_mul.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // outputs: half the values of a 16-byte load

// grid (ceil(T * n / kThreads)), block (kThreads)
template <class A>
__global__ void __launch_bounds__(kThreads) silu_mul_kernel(A* y,              // [T, F]
                                                            const A* gate_up,  // [T, 2 F]
                                                            unsigned n) {      // T F / kWidth
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const auto in = load_pack<A, 2 * kWidth>(gate_up + int64_t(i) * 2 * kWidth);
  Pack<A, kWidth> out;
  for (int k = 0; k < kWidth; ++k) {
    const int gate = k / 2 * 4 + k % 2;
    out.v[k] = narrow<A>(silu_times(widen(in.v[gate]), widen(in.v[gate + 2])));
  }
  store_pack(y + int64_t(i) * kWidth, out);
}

}  // namespace

template <class A>
void silu_mul(View<A, 2> y, View<const A, 2> gate_up, cudaStream_t stream) {
  const auto [T, F] = y.shape;
  check(gate_up.shape[0] == T && gate_up.shape[1] == 2 * F,
        "silu_mul: gate_up's shape is not [T, 2 F]");
  check(F > 0 && F % kWidth == 0 && F < 1ll << 31, "silu_mul: F must be a multiple of 4");
  const int64_t n = T * (F / kWidth);
  check(T >= 0 && n <= 1ll << 31, "silu_mul: too many rows");
  check_aligned({y.data, gate_up.data});
  if (T == 0) return;

  silu_mul_kernel<<<static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      y.data, gate_up.data, static_cast<unsigned>(n));
  cuda_check(cudaGetLastError());
}

template void silu_mul(View<f16, 2>, View<const f16, 2>, cudaStream_t);
template void silu_mul(View<bf16, 2>, View<const bf16, 2>, cudaStream_t);

}  // namespace pf::kernels
