#pragma once

// Four neighbours of paired heads (gemm.h): elements i, i + 1, i + D / 2 and i + D / 2 + 1 of one
// head, which turn in two pairs.

#include "kernels/common/half.cuh"
#include "kernels/rope_target.h"

namespace pf::kernels {

// Numbers n .. n + 3 of row t, bias added, and turned where they are of q or k. Contraction is left
// out so that a row has the CPU twin's bits.
template <class A>
__device__ Pack<float, 4> turned(const RopeTarget<A>& p, int64_t t, int n, Pack<float, 4> v) {
  if (p.bias != nullptr) {
    const auto b = load_pack<float, 4>(p.bias + n);
    for (int i = 0; i < 4; ++i) v.v[i] += b.v[i];
  }
  if (n >= (p.H + p.G) * p.D) return v;
  const float* angle = p.angles + t * p.D + n % p.D / 2;
  const auto c = load_pack<float, 2>(angle), s = load_pack<float, 2>(angle + p.D / 2);
  Pack<float, 4> out;
  for (int i = 0; i < 2; ++i) {
    out.v[i] = __fsub_rn(__fmul_rn(v.v[i], c.v[i]), __fmul_rn(v.v[2 + i], s.v[i]));
    out.v[2 + i] = __fadd_rn(__fmul_rn(v.v[2 + i], c.v[i]), __fmul_rn(v.v[i], s.v[i]));
  }
  return out;
}

// The row of KV head `head` (those of V behind those of K) at a place, in rows of D.
template <class A>
__device__ int64_t kv_row(const RopeTarget<A>& p, int place, int head) {
  return (int64_t(place / p.P) * 2 * p.G + head) * p.P + place % p.P;
}

// Numbers n .. n + 3 to their places in a head, rounded.
template <class A>
__device__ void store_pairs(A* head, int n, int D, const Pack<float, 4>& v) {
  head += n % D / 2;
  store_pack(head, Pack<A, 2>{narrow<A>(v.v[0]), narrow<A>(v.v[1])});
  store_pack(head + D / 2, Pack<A, 2>{narrow<A>(v.v[2]), narrow<A>(v.v[3])});
}

// Turned numbers n .. n + 3 to the row of q or, rounded to A, to their place.
template <class A>
__device__ void store_turned(const RopeTarget<A>& p, int64_t t, int place, int n,
                             const Pack<float, 4>& v) {
  const int head = n / p.D;
  A* to = head < p.H ? p.q + (t * p.H + head) * p.D
                     : static_cast<A*>(p.kv) + kv_row(p, place, head - p.H) * p.D;
  store_pairs(to, n, p.D, v);
}

}  // namespace pf::kernels
