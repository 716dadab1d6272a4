#include "base/cuda.h"
#include "kernels/draft_toy.h"
#include "kernels/sample_types.h"

namespace pf::kernels {
namespace {

// grid (R), block (64)
__global__ void __launch_bounds__(64) toy_forward_kernel(float* logits,          // [R, V]
                                                         const float* table,     // [tokens, V]
                                                         const int32_t* tokens,  // [R]
                                                         const int32_t* open,    // [R]
                                                         int V) {
  const int row = blockIdx.x;
  if (open[row] == kNoNode) return;
  for (int t = threadIdx.x; t < V; t += blockDim.x)
    logits[row * V + t] = table[tokens[row] * V + t];
}

}  // namespace

void toy_forward(float* logits, const float* table, const int32_t* tokens, const int32_t* open,
                 int R, int V, cudaStream_t stream) {
  toy_forward_kernel<<<static_cast<unsigned>(R), 64, 0, stream>>>(logits, table, tokens, open, V);
  cuda_check(cudaGetLastError());
}

}  // namespace pf::kernels
