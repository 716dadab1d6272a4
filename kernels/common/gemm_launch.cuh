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

template <class Tile, GemmTiling kTiling, class A>
void launch_gemm(const typename Tile::Weights& w, const GemmParams<A>& p, cudaStream_t stream) {
  static_assert(Tile::kRows == gemm_block(kTiling).rows &&
                kUnit * Tile::kF == gemm_block(kTiling).features);
  const dim3 grid(static_cast<unsigned>((p.T + Tile::kRows - 1) / Tile::kRows),
                  static_cast<unsigned>((p.N + kUnit * Tile::kF - 1) / (kUnit * Tile::kF)));
  cuda_check(cudaFuncSetAttribute(gemm_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Tile::kSharedBytes));
  gemm_kernel<Tile><<<grid, Tile::kThreads, Tile::kSharedBytes, stream>>>(w, p);
  cuda_check(cudaGetLastError());
}

template <class A>
void check_gemm(const GemmParams<A>& p) {
  const GemmOutput<A>& out = p.out;
  check(out.T == p.T && out.N == p.N, "gemm: y's shape is not that of the product");
  check(p.T >= 0 && p.T < 1ll << 31, "gemm: too many rows");
  check(p.N > 0 && p.N <= 65535ll * kUnit, "gemm: N must be from 1 to 2097120");
  check(p.K > 0 && p.K % 8 == 0 && p.K < 1ll << 29, "gemm: K must be a multiple of 8");
  check(out.form == GemmOutput<A>::Form::kRows || p.N % 4 == 0,
        "gemm: pairs need N to be a multiple of 4");
  check(out.target.scales == nullptr, "gemm: int8 keys and values have a kernel of their own");
  check(out.norm.y == nullptr || (out.form == GemmOutput<A>::Form::kRows && out.y_is_float &&
                                  p.N % 4 == 0 && p.T <= kNormRows),
        "gemm: a norm needs up to 8 rows of floats, in multiples of 4");
  check_aligned({p.x, out.y, out.epilogue.bias, out.norm.y, out.norm.w});
}

// The product of x with the N rows of w.
template <class Weights, class A = typename Weights::Activation>
void run_gemm(const Weights& w, int64_t N, const GemmOutput<A>& out, View<const A, 2> x,
              GemmTiling tiling, cudaStream_t stream) {
  const auto [T, K] = x.shape;
  const GemmParams<A> p{x.data, T, static_cast<int>(K), static_cast<int>(N), out};
  check_gemm(p);
  if (T == 0) return;
  check(out.norm.y == nullptr || tiling == GemmTiling::kAuto || tiling == GemmTiling::kSplit8,
        "gemm: a norm needs the smallest tiling");
  if (tiling == GemmTiling::kAuto) tiling = choose_gemm_tiling(T, N, kHasSplit64<Weights>);
  switch (tiling) {
    case GemmTiling::kSplit8:
      if (out.norm.y != nullptr)
        return launch_gemm<Tile<Weights, 1, 1, 1, true, true>, GemmTiling::kSplit8>(w, p, stream);
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

}  // namespace pf::kernels
