// A warp folds the parts of one row and head: the splits of a group in order, then the groups. When
// the parts are groups already, each is a group of one. Lane l holds elements l, l + 32, ...
#include "base/cuda.h"
#include "kernels/attention.h"
#include "kernels/common/half.cuh"
#include "kernels/common/softmax_state.cuh"

namespace pf::kernels {
namespace {

constexpr int kThreads = 128;

template <int kN>
struct Piece : SoftmaxState {
  float v[kN] = {};
  __device__ void add(const Piece& part) {
    if (part.empty()) return;
    const FoldWeights w = fold(*this, part);
#pragma unroll
    for (int i = 0; i < kN; ++i) v[i] = w(v[i], part.v[i]);
  }
};

// grid (rows, H / 4), block (kThreads): a warp per head
template <class T, int D>
__global__ void __launch_bounds__(kThreads)
    attention_combine_kernel(T* out,                // [rows, H, D]
                             const float* values,   // [parts, H, D]
                             const float2* states,  // [parts, H]
                             const AttentionRowParts* row_parts,
                             const AttentionWork::Counts* counts, int H) {
  constexpr int kN = D / 32;
  const int head = blockIdx.y * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (head >= H) return;
  const AttentionRowParts parts = row_parts[blockIdx.x];
  const int per_group = kGroupTokens / counts->unit_tokens;  // units

  Piece<kN> total, group;
#pragma unroll 1
  for (int i = 0; i < parts.n; ++i) {
    const int64_t at = int64_t(parts.first + i) * H + head;
    Piece<kN> part;
    const float2 state = states[at];
    part.max = state.x, part.sum = state.y;
    if (!part.empty())  // else its values were not written
      for (int j = 0; j < kN; ++j) part.v[j] = values[at * D + j * 32 + lane];
    group.add(part);
    if ((parts.unit + i + 1) % per_group == 0 || i + 1 == parts.n) {
      total.add(group);
      group = {};
    }
  }

  const float scale = parts.n > 0 ? __frcp_rn(total.sum) : 0.0f;
  T* row = out + (int64_t(blockIdx.x) * H + head) * D;
  for (int j = 0; j < kN; ++j) row[j * 32 + lane] = narrow<T>(__fmul_rn(total.v[j], scale));
}

}  // namespace

template <class T>
void attention_combine(View<T, 3> out, AttentionParts parts, const AttentionWork& work,
                       cudaStream_t stream) {
  const auto [n_rows, H, D] = out.shape;
  check(D == 64 || D == 128, "attention_combine: the head width must be 64 or 128");
  check(H > 0 && H < 1 << 16 && n_rows < 1ll << 31, "attention_combine: too many rows or heads");
  if (n_rows == 0) return;

  auto kernel = D == 64 ? attention_combine_kernel<T, 64> : attention_combine_kernel<T, 128>;
  constexpr int kHeads = kThreads / 32;
  dim3 grid(static_cast<unsigned>(n_rows), static_cast<unsigned>((H + kHeads - 1) / kHeads));
  kernel<<<grid, kThreads, 0, stream>>>(out.data, parts.values,
                                        reinterpret_cast<const float2*>(parts.states),
                                        work.row_parts, work.counts, static_cast<int>(H));
  cuda_check(cudaGetLastError());
}

template void attention_combine(View<f16, 3>, AttentionParts, const AttentionWork&, cudaStream_t);
template void attention_combine(View<bf16, 3>, AttentionParts, const AttentionWork&, cudaStream_t);

}  // namespace pf::kernels
