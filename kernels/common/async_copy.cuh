#pragma once

// cp.async: copies from global to shared memory that do not pass through registers.

#include <cuda_runtime.h>

#include <cstdint>

namespace pf::kernels {

// 16 bytes, both sides 16-byte aligned, past the L1. `real` false: 16 zero bytes, nothing is read
// (`from` must still be a device address).
__device__ inline void copy_async_16(void* to, const void* from, bool real = true) {
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  int bytes = real ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(bytes)
               : "memory");
}

// Ends a group: the copies that this thread issued since the last one (there may be none).
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Returns when all but this thread's `kPending` youngest groups are in shared memory. Other threads
// see them after a barrier.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace pf::kernels
