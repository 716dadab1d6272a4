// Occupancy of kernels on architectures that are described, not present, by NVIDIA's own calculator
// (cuda_occupancy.h). Lines "sm_80 REGISTERS STATIC DYNAMIC THREADS BARRIERS" in; for each a line
// "BLOCKS SHARE" out: blocks of threads on a multiprocessor, and their warps over its most.
#include <cuda_occupancy.h>

#include <cstdio>
#include <iostream>
#include <string>

namespace {

// Compute capability, threads and shared memory of a multiprocessor (CUDA programming guide,
// "Technical specifications per compute capability").
bool describe(const std::string& arch, cudaOccDeviceProp* p) {
  struct Row {
    const char* arch;
    int major, minor, threads;
    size_t shared_kib;
  };
  for (const Row& r : {Row{"sm_80", 8, 0, 2048, 164}, Row{"sm_86", 8, 6, 1536, 100},
                       Row{"sm_89", 8, 9, 1536, 100}, Row{"sm_90", 9, 0, 2048, 228}}) {
    if (arch != r.arch) continue;
    p->computeMajor = r.major;
    p->computeMinor = r.minor;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiprocessor = r.threads;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerMultiprocessor = r.shared_kib << 10;
    p->numSms = 1;
    p->sharedMemPerBlockOptin = (r.shared_kib - 1) << 10;
    p->reservedSharedMemPerBlock = 1024;
    return true;
  }
  return false;
}

}  // namespace

int main() {
  std::string arch;
  int registers = 0, threads = 0, barriers = 0;
  size_t fixed = 0, dynamic = 0;
  while (std::cin >> arch >> registers >> fixed >> dynamic >> threads >> barriers) {
    cudaOccDeviceProp device{};
    if (!describe(arch, &device)) {
      std::fprintf(stderr, "occupancy: %s is not described\n", arch.c_str());
      return 2;
    }
    cudaOccFuncAttributes function{};
    function.maxThreadsPerBlock = 1024;
    function.numRegs = registers;
    function.sharedSizeBytes = fixed;
    function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    function.maxDynamicSharedSizeBytes = device.sharedMemPerBlockOptin - fixed;
    function.numBlockBarriers = barriers;
    cudaOccDeviceState state{};
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result{};
    cudaOccError status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function,
                                                                  &state, threads, dynamic);
    if (status != CUDA_OCC_SUCCESS) {
      std::fprintf(stderr, "occupancy: the calculator refuses %s (%d)\n", arch.c_str(), status);
      return 2;
    }
    const int warps = result.activeBlocksPerMultiprocessor * ((threads + 31) / 32);
    std::printf("%d %.2f\n", result.activeBlocksPerMultiprocessor,
                32.0 * warps / device.maxThreadsPerMultiprocessor);
  }
  return 0;
}
