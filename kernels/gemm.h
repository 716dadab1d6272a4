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

}  // namespace pf::kernels
