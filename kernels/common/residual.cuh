#pragma once

// p of one position while it is whittled down: tokens [begin, end) of a row in global memory. Each
// warp owns one stretch and each lane every 32nd token of it, in every pass, so that the sums of
// the warps, kept from the last pass, say where a draw falls.

#include "kernels/common/block.cuh"
#include "kernels/common/row_law.cuh"

namespace pf::kernels {

struct Residual {
  float* p;        // [V]
  int begin, end;  // all others are 0
  double total;    // the sum of p

  __device__ float at(int32_t token) const {
    return token >= begin && token < end ? p[token] : 0.0f;
  }
};

// How many tokens a warp owns: whole groups of 32, so that warps begin at whole sectors.
__device__ inline int stretch_of(const Residual& r) {
  const int groups = (r.end - r.begin + 31) / 32;
  return (groups + n_warps() - 1) / n_warps() * 32;
}

// p[t] <- value(t), and the total. `of_warp` [32] in shared memory receives the warps' sums.
template <class Value>
__device__ void fill(Residual* r, double* of_warp, Value value) {
  const int first = r->begin + warp() * stretch_of(*r);
  const int last = min(first + stretch_of(*r), r->end);
  double own = 0;
  for (int t = first + lane(); t < last; t += 32) {
    const float v = value(t);
    r->p[t] = v;
    own += v;
  }
  r->total = reduce_warps(warp_reduce(own, Sum{}), Sum{}, of_warp);
}

// The token at u of the total, by rising token. Requires a fill since the last change, total > 0.
__device__ inline int32_t draw(const Residual& r, const double* of_warp, double u) {
  __shared__ int32_t drawn;
  // 1. the warp: the first whose end lies beyond u, or the last with any mass
  double left = u * r.total, left_there = left;
  int owner = 0;
#pragma unroll 1
  for (int w = 0; w < n_warps(); ++w) {
    if (of_warp[w] <= 0) continue;
    owner = w;
    left_there = left;
    left -= of_warp[w];
    if (left < 0) break;
  }
  // 2. the token, 32 at a time
  if (warp() == owner) {
    const int first = r.begin + owner * stretch_of(r);
    const int last = min(first + stretch_of(r), r.end);
    int32_t token = -1;
#pragma unroll 1
    for (int tile = first; tile < last; tile += 32) {
      const int t = tile + lane();
      const double v = t < last ? r.p[t] : 0.0;
      const double upto = warp_scan(v);
      const unsigned any = __ballot_sync(~0u, v > 0);
      const unsigned beyond = __ballot_sync(~0u, v > 0 && left_there - upto < 0);
      if (any) token = tile + 31 - __clz(static_cast<int>(any));
      if (beyond) {
        token = tile + __ffs(static_cast<int>(beyond)) - 1;
        break;
      }
      left_there -= __shfl_sync(~0u, upto, 31);
    }
    if (lane() == 0) drawn = token;
  }
  __syncthreads();
  const int32_t token = drawn;
  __syncthreads();
  return token;
}

}  // namespace pf::kernels
