// A block of threads copies one KV block of one layer, which is one stretch of memory, 16 bytes per
// thread and step.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/copy_blocks.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;

// grid (n, L), block (kThreads)
__global__ void __launch_bounds__(kThreads) copy_blocks_kernel(uint4* data,  // [L, N, stretch]
                                                               const int32_t* pairs,  // [n, 2]
                                                               int n_blocks, int stretch) {
  const int64_t layer = int64_t(blockIdx.y) * n_blocks;
  const uint4* from = data + (layer + pairs[2 * blockIdx.x]) * stretch;
  uint4* to = data + (layer + pairs[2 * blockIdx.x + 1]) * stretch;
  for (int i = threadIdx.x; i < stretch; i += kThreads) to[i] = from[i];
}

}  // namespace

template <class T>
void copy_blocks(KvPlane<T> plane, View<const int32_t, 2> pairs, cudaStream_t stream) {
  check(pairs.shape[1] == 2, "copy_blocks: a pair is (from, to)");
  check(plane.head_width % 8 == 0 && plane.block_size() / 8 < 1 << 30 && plane.n_layers < 1 << 16,
        "copy_blocks: a plane of this shape is not supported");
  check_aligned({plane.data});
  const int64_t n = pairs.shape[0];
  if (n == 0) return;

  dim3 grid(static_cast<unsigned>(n), static_cast<unsigned>(plane.n_layers));
  copy_blocks_kernel<<<grid, kThreads, 0, stream>>>(reinterpret_cast<uint4*>(plane.data),
                                                    pairs.data, static_cast<int>(plane.n_blocks),
                                                    static_cast<int>(plane.block_size() / 8));
  cuda_check(cudaGetLastError());
}

template void copy_blocks(KvPlane<f16>, View<const int32_t, 2>, cudaStream_t);
template void copy_blocks(KvPlane<bf16>, View<const int32_t, 2>, cudaStream_t);

}  // namespace pf::kernels
