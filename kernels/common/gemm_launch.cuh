#pragma once

// Which tiling, and its launch.

#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/gemm_core.cuh"
#include "kernels/gemm.h"

namespace pf::kernels {

// With 8 slices the stages of 64 rows of x for each would not fit: such weights have no kSplit64.
template <class Weights>
constexpr bool kHasSplit64 = Weights::kSlices <= 4;

template <class Tile, GemmTiling kTiling>
void launch_gemm(const typename Tile::Weights& w, const GemmParams& p, cudaStream_t stream) {
  static_assert(Tile::kRows == gemm_block(kTiling).rows &&
                kUnit * Tile::kF == gemm_block(kTiling).features);
  const dim3 grid(static_cast<unsigned>((p.T + Tile::kRows - 1) / Tile::kRows),
                  static_cast<unsigned>((p.N + kUnit * Tile::kF - 1) / (kUnit * Tile::kF)));
  cuda_check(cudaFuncSetAttribute(gemm_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Tile::kSharedBytes));
  gemm_kernel<Tile><<<grid, Tile::kThreads, Tile::kSharedBytes, stream>>>(w, p);
  cuda_check(cudaGetLastError());
}

template <class Weights>
void run_gemm(const Weights& w, const GemmParams& p, GemmTiling tiling, cudaStream_t stream) {
  if (tiling == GemmTiling::kAuto) tiling = choose_gemm_tiling(p.T, p.N, kHasSplit64<Weights>);
  switch (tiling) {
    case GemmTiling::kSplit8:
      return launch_gemm<Tile<Weights, 1, 1, 1, true>, GemmTiling::kSplit8>(w, p, stream);
    case GemmTiling::kSplit16:
      return launch_gemm<Tile<Weights, 1, 1, 2, true>, GemmTiling::kSplit16>(w, p, stream);
    case GemmTiling::kSplit32:
      return launch_gemm<Tile<Weights, 1, 1, 4, true>, GemmTiling::kSplit32>(w, p, stream);
    case GemmTiling::kSplit64:
      if constexpr (kHasSplit64<Weights>)
        return launch_gemm<Tile<Weights, 1, 1, 8, true>, GemmTiling::kSplit64>(w, p, stream);
      break;
    case GemmTiling::k64x64:
      return launch_gemm<Tile<Weights, 2, 2, 4, false>, GemmTiling::k64x64>(w, p, stream);
    case GemmTiling::k128x128:
      return launch_gemm<Tile<Weights, 4, 2, 8, false>, GemmTiling::k128x128>(w, p, stream);
    case GemmTiling::kAuto:
      break;
  }
  die("gemm: these weights have no such tiling");
}

inline void check_gemm(const GemmParams& p, int64_t y_T, int64_t y_N, int64_t K, int64_t N) {
  check(y_T == p.T && y_N == N, "gemm: y's shape is not [T, N]");
  check(p.T >= 0 && p.T < 1ll << 31, "gemm: too many rows");
  check(N > 0 && N <= 65535ll * kUnit, "gemm: N must be from 1 to 2097120");
  check(K > 0 && K % 8 == 0 && K < 1ll << 29, "gemm: K must be a multiple of 8");
  check_aligned({p.x, p.y, p.bias});
}

}  // namespace pf::kernels
