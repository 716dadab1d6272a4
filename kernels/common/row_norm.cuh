#pragma once

// rms_norm.h's sum of squares of a row: 256 chains, one for each 4 neighbours of every 1024, added
// up by warps and then warp by warp. rms_norm.cu gives a row a block of so many threads.

#include "kernels/common/last_block.cuh"

namespace pf::kernels {

constexpr int kNormThreads = 256;
constexpr int kNormWidth = 4;  // floats of a 16-byte load

template <class A>
__device__ void store_normed(A* y, const Pack<float, kNormWidth>& x, float scale, const float* w) {
  const auto g = load_pack<float, kNormWidth>(w);
  Pack<A, kNormWidth> out;
  for (int i = 0; i < kNormWidth; ++i) out.v[i] = narrow<A>(x.v[i] * scale * g.v[i]);
  store_pack(y, out);
}

// The same by one warp, of a row that other blocks have written (last_block.cuh).
template <class A>
__device__ void norm_fresh_row(A* y, const float* x, const float* w, int E, float epsilon) {
  constexpr int kWarps = kNormThreads / 32, kPart = 32 * kNormWidth;
  const int lane = threadIdx.x % 32;
  float squares[kWarps] = {};
#pragma unroll 1
  for (int first = lane * kNormWidth; first < E; first += kWarps * kPart)
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      if (const int e = first + warp * kPart; e < E)
        for (float v : load_fresh_pack(x + e).v) squares[warp] = __fmaf_rn(v, v, squares[warp]);
  float sum = 0;
#pragma unroll
  for (float s : squares) {
    for (int by = 16; by > 0; by /= 2) s += __shfl_xor_sync(~0u, s, by);
    sum += s;
  }
  const float scale = rsqrtf(sum / static_cast<float>(E) + epsilon);
#pragma unroll 4
  for (int e = lane * kNormWidth; e < E; e += kPart)
    store_normed(y + e, load_fresh_pack(x + e), scale, w + e);
}

}  // namespace pf::kernels
