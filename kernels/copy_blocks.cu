// A block of threads copies one KV block of one layer, which is one stretch of memory, 16 bytes per
// thread and step, and where the plane has scales another of theirs.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/copy_blocks.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;

// grid (n, L), block (kThreads)
__global__ void __launch_bounds__(kThreads)
    copy_blocks_kernel(uint4* data,           // [L, N, stretch]
                       float* scales,         // [L, N, n_scales]
                       const int32_t* pairs,  // [n, 2]
                       int n_blocks, int stretch, int n_scales) {
  const int64_t layer = int64_t(blockIdx.y) * n_blocks;
  const int64_t from = layer + pairs[2 * blockIdx.x], to = layer + pairs[2 * blockIdx.x + 1];
  for (int i = threadIdx.x; i < stretch; i += kThreads)
    data[to * stretch + i] = data[from * stretch + i];
#pragma unroll 1  // there are few
  for (int i = threadIdx.x; i < n_scales; i += kThreads)
    scales[to * n_scales + i] = scales[from * n_scales + i];
}

}  // namespace

template <class T>
void copy_blocks(KvPlane<T> plane, View<const int32_t, 2> pairs, cudaStream_t stream) {
  check(pairs.shape[1] == 2, "copy_blocks: a pair is (from, to)");
  const int64_t row_bytes = plane.head_width * plane.element_bytes();
  const int64_t stretch = plane.block_scales() * (row_bytes / 16);
  check(row_bytes % 16 == 0 && stretch < 1 << 30 && plane.n_layers < 1 << 16,
        "copy_blocks: a plane of this shape is not supported");
  check_aligned({plane.bytes(), plane.scales});
  const int64_t n = pairs.shape[0];
  if (n == 0) return;

  dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(plane.n_layers));
  copy_blocks_kernel<<<grid, kThreads, 0, stream>>>(
      static_cast<uint4*>(plane.bytes()), plane.scales, pairs.data,
      static_cast<int>(plane.n_blocks), static_cast<int>(stretch),
      plane.scales != nullptr ? static_cast<int>(plane.block_scales()) : 0);
  cuda_check(cudaGetLastError());
}

template void copy_blocks(KvPlane<f16>, View<const int32_t, 2>, cudaStream_t);
template void copy_blocks(KvPlane<bf16>, View<const int32_t, 2>, cudaStream_t);

}  // namespace pf::kernels
