// A thread owns 16 bytes of the head width, in one (layer, K or V, KV head), and carries them
// through all moves of its sequence. No other thread touches them, so what the moves read and write
// is ordered by the program alone: four are read, then four are written, which the requirement in
// the header allows and which hides three of four latencies.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/compact_kv.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kAhead = 4;

struct CompactParams {
  uint4* data;                         // [L, N, 2, G, P, chunks]
  const int32_t* moves;                // [n, 2]
  const int32_t* first;                // [B + 1]
  int64_t layer_stride, block_stride;  // chunks of 16 bytes
  int block_tokens, chunks, columns;   // columns = 2 G chunks
};

// grid (columns / kThreads, L, B), block (kThreads)
__global__ void __launch_bounds__(kThreads)
    compact_kv_kernel(const __grid_constant__ CompactParams p) {
  const int column = blockIdx.x * kThreads + threadIdx.x;
  if (column >= p.columns) return;
  uint4* tile = p.data + blockIdx.y * p.layer_stride +
                int64_t(column / p.chunks) * p.block_tokens * p.chunks + column % p.chunks;
  auto at = [&](int32_t place) {
    return tile + place / p.block_tokens * p.block_stride + place % p.block_tokens * p.chunks;
  };

  const int end = p.first[blockIdx.z + 1];
  for (int move = p.first[blockIdx.z]; move < end; move += kAhead) {
    uint4 held[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (move + i < end) held[i] = *at(p.moves[2 * (move + i)]);
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (move + i < end) *at(p.moves[2 * (move + i) + 1]) = held[i];
  }
}

}  // namespace

template <class T>
void compact_kv(KvPlane<T> plane, View<const int32_t, 2> moves, View<const int32_t, 1> first,
                cudaStream_t stream) {
  const int64_t B = first.shape[0] - 1;
  check(moves.shape[1] == 2 && B >= 0, "compact_kv: moves are [n, 2], first is [B + 1]");
  check(plane.head_width % 8 == 0 && plane.n_layers < 1 << 16 && B < 1 << 16 &&
            plane.n_blocks * plane.block_tokens < 1ll << 31,
        "compact_kv: a plane of this shape is not supported");
  check_aligned({plane.data});
  if (moves.shape[0] == 0 || B == 0) return;

  int64_t chunks = plane.head_width / 8, columns = 2 * plane.n_kv_heads * chunks;
  CompactParams p{reinterpret_cast<uint4*>(plane.data),
                  moves.data,
                  first.data,
                  plane.n_blocks * plane.block_size() / 8,
                  plane.block_size() / 8,
                  static_cast<int>(plane.block_tokens),
                  static_cast<int>(chunks),
                  static_cast<int>(columns)};
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
