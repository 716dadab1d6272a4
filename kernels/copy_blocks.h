#pragma once

#include "base/view.h"
#include "kernels/kv_plane.h"

namespace pf::kernels {

// Copy on write: in every layer, K and V of block `to` become those of block `from`, all P slots,
// and so do their scales where the plane has them.
//
//   pairs  int32 [n, 2] on the device: (from, to)
//
// Requires: the `to` are distinct and none of them is a `from`; both < N. n == 0 does nothing.
// Moves 2 n L block_size elements, each once: bandwidth-bound. Slots that nobody has filled yet are
// copied as they are.
template <class T>
void copy_blocks(KvPlane<T> plane, View<const int32_t, 2> pairs, cudaStream_t stream);

}  // namespace pf::kernels
