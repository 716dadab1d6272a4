#pragma once

#include "base/view.h"
#include "kernels/kv_plane.h"

namespace pf::kernels {

// An accepted tree path moves to the front: in every layer and KV head, K and V at place `to`
// become those at place `from`, with their scales where the plane has them, the moves of one
// sequence in their order.
//
//   moves  int32 [n, 2] on the device: (from, to), places (kv_plane.h)
//   first  int32 [B + 1] on the device: moves [first[b], first[b + 1]) are those of sequence b
//
// The moves of a sequence may overlap: a place may be read by one move and written by a later one.
// Requires: no place is read by a move after an earlier one wrote it (so it is when the k-th
// accepted node goes to slot k: the nodes ascend, hence from > every earlier to), and different
// sequences touch different places. Moves 4 n L G D elements: bound by latency.
template <class T>
void compact_kv(KvPlane<T> plane, View<const int32_t, 2> moves, View<const int32_t, 1> first,
                cudaStream_t stream);

}  // namespace pf::kernels
