// One thread makes 4 neighbouring sums: 16 bytes from each share. The threads are numbered through
// the rows: few wide rows and many narrow ones fill the device alike.
#include "base/cuda.h"
#include "kernels/add_partials.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/half.cuh"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;  // values of a 16-byte load

// grid (ceil(T E / kWidth / kThreads)), block (kThreads)
__global__ void __launch_bounds__(kThreads) add_partials_kernel(float* y,        // [T, E]
                                                                const float* p,  // [n, T, E]
                                                                int n,
                                                                unsigned m) {  // T E / kWidth
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= m) return;
  y += int64_t(i) * kWidth;
  p += int64_t(i) * kWidth;
  auto sum = load_pack<float, kWidth>(p);
  for (int r = 1; r < n; ++r) {
    const auto next = load_pack<float, kWidth>(p + int64_t(r) * m * kWidth);
    for (int k = 0; k < kWidth; ++k) sum.v[k] += next.v[k];
  }
  auto out = load_pack<float, kWidth>(y);
  for (int k = 0; k < kWidth; ++k) out.v[k] += sum.v[k];
  store_pack(y, out);
}

}  // namespace

void add_partials(View<float, 2> y, View<const float, 3> partials, cudaStream_t stream) {
  const auto [T, E] = y.shape;
  const int64_t n = partials.shape[0];
  check(n >= 1 && partials.shape[1] == T && partials.shape[2] == E,
        "add_partials: the shares' shape is not [n, T, E]");
  check(E > 0 && E % kWidth == 0, "add_partials: E must be a multiple of 4");
  const int64_t m = T * E / kWidth;
  check(T >= 0 && m < 1ll << 31 && n < 1ll << 31, "add_partials: too many rows");
  check_aligned({y.data, partials.data});
  if (T == 0) return;

  const auto n_blocks = static_cast<unsigned>((m + kThreads - 1) / kThreads);
  add_partials_kernel<<<n_blocks, kThreads, 0, stream>>>(y.data, partials.data, static_cast<int>(n),
                                                         static_cast<unsigned>(m));
  cuda_check(cudaGetLastError());
}

}  // namespace pf::kernels
