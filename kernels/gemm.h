#pragma once

#include <cstdint>

namespace pf::kernels {

// What a product does with its sum v, in float, before it is rounded once to the type of y:
// v + bias[n] where there is a bias, then y[t,n] + that where it adds.
struct GemmEpilogue {
  const float* bias = nullptr;  // [N]; null: none
  bool add = false;
};

// How the output is cut. Every tiling gives the same bits, so the choice is one of speed alone:
// kAuto takes one by (T, N). Split tilings give each block 32 features, 8 to 64 rows and one warp
// per slice of K; the others give each warp its own outputs. gemm_int4 has no kSplit64.
enum class GemmTiling : uint8_t {
  kAuto,
  kSplit8,
  kSplit16,
  kSplit32,
  kSplit64,
  k64x64,
  k128x128,
};

// What kAuto means. has_split64: the weights have such a tiling.
inline GemmTiling choose_gemm_tiling(int64_t T, int64_t N, bool has_split64) {
  if (T <= 8) return GemmTiling::kSplit8;
  if (T <= 16) return GemmTiling::kSplit16;
  if (T <= 32) return GemmTiling::kSplit32;
  // Larger blocks move fewer bytes from the L2 per product, but while there are fewer of them than
  // multiprocessors (80 to 132) some of these stand idle.
  if (T <= 64) {
    const bool is_wide = N >= 64 * 2 * 132;
    return has_split64 && !is_wide ? GemmTiling::kSplit64 : GemmTiling::k64x64;
  }
  return (T + 127) / 128 * ((N + 127) / 128) >= 100 ? GemmTiling::k128x128 : GemmTiling::k64x64;
}

// The piece of y that one block of threads makes.
struct GemmBlock {
  int rows, features;
};
constexpr GemmBlock gemm_block(GemmTiling tiling) {
  switch (tiling) {
    case GemmTiling::kAuto:
      break;
    case GemmTiling::kSplit8:
      return {8, 32};
    case GemmTiling::kSplit16:
      return {16, 32};
    case GemmTiling::kSplit32:
      return {32, 32};
    case GemmTiling::kSplit64:
      return {64, 32};
    case GemmTiling::k64x64:
      return {64, 64};
    case GemmTiling::k128x128:
      return {128, 128};
  }
  return {0, 0};
}

}  // namespace pf::kernels
