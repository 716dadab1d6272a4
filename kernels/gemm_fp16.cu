// The weights stay as they are in the file, [N, K] row-major. A stage of a unit is [32 features]
// [64 k]; chunk c of feature f lies at c ^ (f / 4 % 8), since ldmatrix takes every fourth feature
// (gemm_core.cuh) and would otherwise meet two banks eight times. Tiles, pipeline and order of
// summation: gemm_core.cuh.
#include "kernels/common/gemm_launch.cuh"
#include "kernels/gemm_fp16.h"

namespace pf::kernels {
namespace {

template <class A>
struct HalfWeights {
  using Activation = A;
  static constexpr int kSlices = 4, kUnitBytes = kUnit * 2 * kStep;

  const A* w;  // [N, K]
  int N, K;

  template <int n_units, int n_threads>
  __device__ void load(unsigned char* to, int unit, int step, int thread) const {
#pragma unroll
    for (int i = 0; i < n_units * kUnit * kStepChunks; i += n_threads) {
      const int row = (i + thread) / kStepChunks, chunk = thread % kStepChunks;
      const int n = unit * kUnit + row, k = step * kStep + chunk * 8;
      const bool valid = n < N && k < K;
      copy_async_16(to + row * 128 + (chunk ^ row / 4 % 8) * 16,
                    w + (valid ? int64_t(n) * K + k : 0), valid);
    }
  }

  template <int kN>
  __device__ void multiply(float (&sum)[2][kN][4], const unsigned char* unit,
                           const unsigned char* rows, int lane) const {
    const int r = lane % 8, matrix = lane / 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a[2][2][4];  // [k16][tile]
      for (int i = 0; i < 2; ++i)
        for (int m = 0; m < 2; ++m) {
          const int feature = 4 * r + 2 * m + matrix % 2, chunk = 4 * half + 2 * i + matrix / 2;
          load_matrices(a[i][m], unit + feature * 128 + (chunk ^ r) * 16);
        }
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        uint32_t b[4];
        row_fragment(b, rows + j * 8 * 128, half, lane);
        for (int m = 0; m < 2; ++m) {
          multiply_add<A>(sum[m][j], a[0][m], b[0], b[1]);
          multiply_add<A>(sum[m][j], a[1][m], b[2], b[3]);
        }
      }
    }
  }
};

}  // namespace

template <class A>
void gemm_fp16(const GemmOutput<A>& y, View<const A, 2> x, View<const A, 2> w, cudaStream_t stream,
               GemmTiling tiling) {
  const auto [N, K] = w.shape;
  check(x.shape[1] == K, "gemm_fp16: x and w differ in K");
  check_aligned({w.data});
  run_gemm(HalfWeights<A>{w.data, static_cast<int>(N), static_cast<int>(K)}, N, y, x, tiling,
           stream);
}

template void gemm_fp16(const GemmOutput<f16>&, View<const f16, 2>, View<const f16, 2>,
                        cudaStream_t, GemmTiling);
template void gemm_fp16(const GemmOutput<bf16>&, View<const bf16, 2>, View<const bf16, 2>,
                        cudaStream_t, GemmTiling);

}  // namespace pf::kernels
