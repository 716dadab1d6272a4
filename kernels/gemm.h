#pragma once

#include <cstdint>
#include <type_traits>

#include "base/view.h"
#include "kernels/rope_target.h"

namespace pf::kernels {

// Rows of w that become one number together stand side by side: of two halves of `half` rows each,
// two of the first, two of the second, and so on, in every 2 `half` rows. A thread that holds four
// neighbours of a product then holds two pairs. Row `row` of w is this row of the halves one
// behind the other.
constexpr int64_t unpaired_row(int64_t row, int64_t half) {
  const int64_t at = row % (2 * half);
  return row - at + at / 4 * 2 + at % 2 + (at % 4 < 2 ? 0 : half);
}

// What a product does with its sum v, in float, before it is rounded once to the type of y:
// v + bias[n] where there is a bias, then y[t,n] + that where it adds.
struct GemmEpilogue {
  const float* bias = nullptr;  // [N]; null: none
  bool add = false;
};

// The norm of the rows that a product has added to (rms_norm.h, with its bits): the block that
// comes last makes it, a warp to a row. So up to kNormRows rows; of more, one multiprocessor would
// read longer than a launch takes.
inline constexpr int kNormRows = 8;
template <class A>
struct RowNorm {
  A* y = nullptr;            // [T, N]; null: none
  const float* w = nullptr;  // [N]
  float epsilon = 0;
  uint32_t* counter = nullptr;  // 0 before and after
};

// Where a product [T, N] goes, and what becomes of it on the way.
template <class A>
struct GemmOutput {
  enum class Form : uint8_t {
    kRows,  // y A or float [T, N], as GemmEpilogue says
    kSilu,  // y A [T, N / 2]: of paired rows (gate, up), each rounded to A, then as in silu_mul.h
    kRope,  // to `target`, as in rope_kv_write.h; not to int8
  };
  Form form = Form::kRows;
  void* y = nullptr;
  int64_t T = 0, N = 0;
  bool y_is_float = false;
  GemmEpilogue epilogue = {};
  RopeTarget<A> target = {};
  RowNorm<A> norm = {};  // of kRows that are float; N a multiple of 4

  template <class Y>
  static GemmOutput rows(View<Y, 2> y, GemmEpilogue epilogue) {
    return {Form::kRows, y.data, y.shape[0], y.shape[1], std::is_same_v<Y, float>, epilogue};
  }
  static GemmOutput silu(View<A, 2> y) {
    return {.form = Form::kSilu, .y = y.data, .T = y.shape[0], .N = 2 * y.shape[1]};
  }
  static GemmOutput rope(const RopeTarget<A>& target) {
    return {.form = Form::kRope, .T = target.T, .N = target.width(), .target = target};
  }
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

// The piece of the product that one block of threads makes.
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
