#pragma once

#include <cuda_runtime_api.h>

#include "base/view.h"
#include "kernels/sample_types.h"

namespace pf::kernels {

// Where the nodes that a level has just grown go, and what they see; only the device knows which
// nodes those are. Between grow_trees and the forward pass that feeds them:
//
//   places  int32 [B, W]     the place (kv_plane.h) of slot slots[b] + node; -1 for kNoNode, which
//                            makes a row that writes nothing
//   masks   uint64 [B, W]    bit of the node and of each of its ancestors; 0 for kNoNode
//   open    int32 [B, W]     the nodes (grow_trees' next_open)
//   parents int32 [B, kMaxNodes]
//   slots   int32 [B]        slot of node 0 of each tree
//   first   int32 [B]        where each sequence's blocks begin in `tables`
//   tables  int32            slot s lies in block tables[first[b] + s / P] at s % P
//
// Only rows of open nodes are read. B W == 0 does nothing. Bound by latency.
void place_nodes(View<int32_t, 2> places, View<uint64_t, 2> masks, View<const int32_t, 2> open,
                 const int32_t* parents, View<const int32_t, 1> slots, View<const int32_t, 1> first,
                 const int32_t* tables, int block_tokens, cudaStream_t stream);

}  // namespace pf::kernels
