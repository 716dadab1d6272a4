// A thread owns 16 bytes of the head width, in one (layer, K or V, KV head), or the scale of that
// head's rows, and carries them through all moves of its sequence. No other thread touches them, so
// what the moves read and write is ordered by the program alone: four are read, then four are
// written, which the requirement in the header allows and which hides three of four latencies.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/compact_kv.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 4;

struct CompactParams {
  uint4* data;                                // [L, N, 2, G, P, chunks]
  float* scales;                              // [L, N, 2, G, P]
  const int32_t* moves;                       // [n, 2]
  const int32_t* first;                       // [B + 1]
  int n_blocks, block_tokens, chunks, tiles;  // tiles = 2 G
};

// The moves of this block's sequence within one tile, whose slots are `slot` elements apart.
template <class E>
__device__ void carry(const CompactParams& p, E* tile, int slot) {
  const int64_t block = int64_t(p.tiles) * p.block_tokens * slot;
  auto at = [&](int32_t place) {
    return tile + place / p.block_tokens * block + place % p.block_tokens * slot;
  };
  const int end = p.first[blockIdx.z + 1];
  for (int move = p.first[blockIdx.z]; move < end; move += kAhead) {
    E held[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (move + i < end) held[i] = *at(p.moves[2 * (move + i)]);
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (move + i < end) *at(p.moves[2 * (move + i) + 1]) = held[i];
  }
}

// grid (columns / kThreads, L, B), block (kThreads): a column per chunk of a tile, then per tile
__global__ void __launch_bounds__(kThreads)
    compact_kv_kernel(const __grid_constant__ CompactParams p) {
  const int column = blockIdx.x * kThreads + threadIdx.x, columns = p.tiles * p.chunks;
  const int64_t before = int64_t(blockIdx.y) * p.n_blocks * p.tiles;  // tiles of the layers below
  if (column < columns)
    carry(p, p.data + (before + column / p.chunks) * p.block_tokens * p.chunks + column % p.chunks,
          p.chunks);
  else if (p.scales != nullptr && column < columns + p.tiles)
    carry(p, p.scales + (before + column - columns) * p.block_tokens, 1);
}

}  // namespace

template <class T>
void compact_kv(KvPlane<T> plane, View<const int32_t, 2> moves, View<const int32_t, 1> first,
                cudaStream_t stream) {
  const int64_t B = first.shape[0] - 1;
  check(moves.shape[1] == 2 && B >= 0, "compact_kv: moves are [n, 2], first is [B + 1]");
  const int64_t row_bytes = plane.head_width * plane.element_bytes();
  check(row_bytes % 16 == 0 && plane.n_layers < 1 << 16 && B < 1 << 16 &&
            plane.n_blocks * plane.block_tokens < 1ll << 31,
        "compact_kv: a plane of this shape is not supported");
  check_aligned({plane.bytes(), plane.scales});
  if (moves.shape[0] == 0 || B == 0) return;

  int64_t chunks = row_bytes / 16, tiles = 2 * plane.n_kv_heads;
  int64_t columns = tiles * (chunks + (plane.scales != nullptr ? 1 : 0));
  CompactParams p{static_cast<uint4*>(plane.bytes()),
                  plane.scales,
                  moves.data,
                  first.data,
                  static_cast<int>(plane.n_blocks),
                  static_cast<int>(plane.block_tokens),
                  static_cast<int>(chunks),
                  static_cast<int>(tiles)};
  dim3 grid(static_cast<unsigned>((columns + kThreads - 1) / kThreads),
            static_cast<unsigned>(plane.n_layers), static_cast<unsigned>(B));
  compact_kv_kernel<<<grid, kThreads, 0, stream>>>(p);
  cuda_check(cudaGetLastError());
}

template void compact_kv(KvPlane<f16>, View<const int32_t, 2>, View<const int32_t, 1>,
                         cudaStream_t);
template void compact_kv(KvPlane<bf16>, View<const int32_t, 2>, View<const int32_t, 1>,
                         cudaStream_t);

}  // namespace pf::kernels
