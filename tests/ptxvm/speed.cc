// Prints how fast flash attention (n = 512, one head of 64) runs on the machine, all checks on.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "ptxvm/ptxvm.h"
#include "ptxvm/samples/samples.h"

int main() {
  const size_t n = 512, bytes = n * 64 * 2;
  void* p[4];
  std::vector<unsigned short> ones(n * 64, 0x3c00);
  for (void*& q : p) {
    cudaMalloc(&q, bytes);
    cudaMemcpy(q, ones.data(), bytes, cudaMemcpyHostToDevice);
  }
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    auto start = std::chrono::steady_clock::now();
    flash_attention(static_cast<__half*>(p[0]), static_cast<__half*>(p[1]),
                    static_cast<__half*>(p[2]), static_cast<__half*>(p[3]), static_cast<int>(n));
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    best = std::min(best, taken.count());
  }
  std::printf("flash attention n=%zu: %.3f s, %.2f GFLOP/s\n%s", n, best,
              4.0 * n * n * 64 / best * 1e-9, pf::ptxvm::measures_text().c_str());
  return 0;
}
