// A thread takes one node and walks to its root, which is as many steps as the level is deep.
#include "base/cuda.h"
#include "kernels/place_nodes.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 64;

// grid (ceil(B W / kThreads)), block (kThreads)
__global__ void __launch_bounds__(kThreads)
    place_nodes_kernel(int32_t* places,         // [B, W]
                       uint64_t* masks,         // [B, W]
                       const int32_t* open,     // [B, W]
                       const int32_t* parents,  // [B, kMaxNodes]
                       const int32_t* slots,    // [B]
                       const int32_t* first,    // [B]
                       const int32_t* tables, int W, int P, int n) {
  const int at = blockIdx.x * kThreads + threadIdx.x;
  if (at >= n) return;
  const int b = at / W;
  const int32_t node = open[at];
  int32_t place = -1;
  uint64_t mask = 0;
  if (node != kNoNode) {
    const int slot = slots[b] + node;
    place = tables[first[b] + slot / P] * P + slot % P;
#pragma unroll 1
    for (int32_t i = node; i >= 0; i = parents[b * kMaxNodes + i]) mask |= uint64_t{1} << i;
  }
  places[at] = place;
  masks[at] = mask;
}

}  // namespace

void place_nodes(View<int32_t, 2> places, View<uint64_t, 2> masks, View<const int32_t, 2> open,
                 const int32_t* parents, View<const int32_t, 1> slots, View<const int32_t, 1> first,
                 const int32_t* tables, int block_tokens, cudaStream_t stream) {
  const auto [B, W] = places.shape;
  check(masks.shape[0] == B && masks.shape[1] == W && open.shape[0] == B && open.shape[1] == W &&
            slots.shape[0] == B && first.shape[0] == B,
        "place_nodes: the shapes differ");
  check(block_tokens > 0 && B * W < 1ll << 31 && B < 1 << 25, "place_nodes: too many nodes");
  if (B * W == 0) return;

  const int n = static_cast<int>(B * W);
  place_nodes_kernel<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      places.data, masks.data, open.data, parents, slots.data, first.data, tables,
      static_cast<int>(W), block_tokens, n);
  cuda_check(cudaGetLastError());
}

}  // namespace pf::kernels
