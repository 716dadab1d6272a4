#pragma once

// The end of a product: four neighbouring sums of one row on their way out (kernels/gemm.h). A form
// has no tiling: every tiling ends here, so that they give the same bits.

#include "kernels/common/half.cuh"
#include "kernels/common/rope.cuh"
#include "kernels/common/silu.cuh"
#include "kernels/gemm.h"

namespace pf::kernels {

template <class A>
struct GemmParams {
  const A* x;  // [T, K]
  int64_t T;
  int K, N;
  GemmOutput<A> out;
};

// N a multiple of 4.
template <class Y, class A>
__device__ void store_whole(const GemmParams<A>& p, int64_t t, int n, Pack<float, 4> v) {
  const auto [bias, add] = p.out.epilogue;
  Y* y = static_cast<Y*>(p.out.y) + t * p.N + n;
  if (bias != nullptr) {
    const auto b = load_pack<float, 4>(bias + n);
    for (int i = 0; i < 4; ++i) v.v[i] += b.v[i];
  }
  if (add) {
    const auto old = load_pack<Y, 4>(y);
    for (int i = 0; i < 4; ++i) v.v[i] += widen(old.v[i]);
  }
  Pack<Y, 4> out;
  for (int i = 0; i < 4; ++i) out.v[i] = narrow<Y>(v.v[i]);
  store_pack(y, out);
}
template <class Y, class A>
__device__ void store_row(const GemmParams<A>& p, int64_t t, int n, const Pack<float, 4>& v) {
  if (p.N % 4 == 0) return store_whole<Y>(p, t, n, v);
  const auto [bias, add] = p.out.epilogue;
  Y* y = static_cast<Y*>(p.out.y) + t * p.N + n;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (n + i >= p.N) return;
    float sum = v.v[i];
    if (bias != nullptr) sum += bias[n + i];
    if (add) sum += widen(y[i]);
    y[i] = narrow<Y>(sum);
  }
}

template <class A>
__device__ void store_silu(const GemmParams<A>& p, int64_t t, int n, const Pack<float, 4>& v) {
  Pack<A, 2> out;
  for (int i = 0; i < 2; ++i)
    out.v[i] = narrow<A>(silu_times(widen(narrow<A>(v.v[i])), widen(narrow<A>(v.v[2 + i]))));
  store_pack(static_cast<A*>(p.out.y) + (t * p.N + n) / 2, out);
}

template <class A>
__device__ void store_rope(const GemmParams<A>& p, int64_t t, int n, const Pack<float, 4>& v) {
  const RopeTarget<A>& to = p.out.target;
  const int place = to.places[t];
  if (place >= 0) store_turned(to, t, place, n, turned(to, t, n, v));
}

// Sums n .. n + 3 of row t; nothing where there is no such row or feature.
template <class A>
__device__ void store(const GemmParams<A>& p, int64_t t, int n, const Pack<float, 4>& v) {
  if (t >= p.T || n >= p.N) return;
  if (p.out.form == GemmOutput<A>::Form::kSilu)
    store_silu(p, t, n, v);
  else if (p.out.form == GemmOutput<A>::Form::kRope)
    store_rope(p, t, n, v);
  else if (p.out.y_is_float)
    store_row<float>(p, t, n, v);
  else
    store_row<A>(p, t, n, v);
}

}  // namespace pf::kernels
