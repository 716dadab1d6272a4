#pragma once

// The PTX of sm_80 that the matrix kernels stand on: asynchronous copies, ldmatrix, mma.sync.

#include <cstdint>

#include "base/dtype.h"

namespace pf::kernels {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Starts to copy 16 bytes to shared memory, past the L1; where !valid it writes zeros instead and
// `from` is not read (it must still be an address of the array).
__device__ inline void copy_async_16(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
// Closes this thread's group of copies; waits until at most `n` groups are under way.
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
__device__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

// Four 8 x 8 matrices of 16-bit values. Lane 8 i + r names row r of matrix i (16 bytes); lane l
// gets elements (l / 4, 2 (l % 4)) and the next of each.
__device__ inline void load_matrices(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

// d[16 x 8] += a[16 x 16] b[16 x 8] in float. With g = lane / 4, c = 2 (lane % 4):
//   a  (g, c), (g + 8, c), (g, c + 8), (g + 8, c + 8), each with its right neighbour
//   b  (c, g), (c + 8, g), each with the one below
//   d  (g, c), (g, c + 1), (g + 8, c), (g + 8, c + 1)
template <class A>
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void mma<f16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void mma<bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// (x & mask) | bits, one instruction.
template <uint32_t mask, uint32_t bits>
__device__ uint32_t masked_or(uint32_t x) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(x), "n"(mask), "n"(bits));
  return out;
}

}  // namespace pf::kernels
