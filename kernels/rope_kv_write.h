#pragma once

#include "base/view.h"
#include "kernels/kv_plane.h"
#include "kernels/rope_target.h"

namespace pf::kernels {

// cos and sin of every row's angles, once per step for all layers (Su et al. 2021, eq. 15):
//
//   angles[t, :, i] = factor * (cos, sin)(positions[t] * inverse[i])
//
//   angles     float [T, 2, D / 2]
//   positions  int32 [T] on the device, >= 0
//   inverse    float [D / 2] on the device: rope_frequencies() of the model, scaling included
//   factor     its attention_factor
//
// In double, rounded once, so that long contexts turn exactly. T == 0 does nothing.
void rope_angles(View<float, 3> angles, View<const int32_t, 1> positions,
                 View<const float, 1> inverse, float factor, cudaStream_t stream);

// Bias, rotary position, and K and V to their places.
//
//   q       A [T, H, D]              written: (qkv + bias) turned, rounded to A
//   plane   one layer (KvPlane::layer); K is turned, V is not, both rounded to A, or straight from
//           float to int8: |error| <= scale (1/2 + 2^-15); a row that is not finite gets the scale
//           NaN, one below 2^-100 the scale 0. Requires there: D 64 or 128
//   bias    float [(H + 2 G) D]      or null: none
//   angles  float [T, 2, D / 2]      of rope_angles
//   places  int32 [T] on the device  where row t's K and V go (kv_plane.h); < 0: a padded row,
//                                    which reads and writes nothing
//   qkv     float [T, (H + 2 G) D]   heads of q, then k, then v. In each, as in the bias, number i
//                                    is element unpaired_row(i, D / 2) (gemm.h)
//
// Element i of a head turns with element i + D / 2 ("rotate half"). Requires D % 8 == 0, distinct
// places, 16-byte aligned arrays that do not overlap. T == 0 does nothing. Moves the row once in
// and once out: bandwidth-bound, at few rows bound by latency. Where the plane is not int8, the
// product that makes qkv writes the same bits itself (GemmOutput): int8 alone needs to know a whole
// head, which no block of the small tilings holds.
template <class A>
RopeTarget<A> rope_target(View<A, 3> q, KvPlane<A> plane, const float* bias,
                          View<const float, 3> angles, View<const int32_t, 1> places);
template <class A>
void rope_kv_write(const RopeTarget<A>& target, View<const float, 2> qkv, cudaStream_t stream);

}  // namespace pf::kernels
