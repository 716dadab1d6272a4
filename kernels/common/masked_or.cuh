#pragma once

#include <cstdint>

namespace pf::kernels {

// (x & mask) | bits, one instruction.
template <uint32_t mask, uint32_t bits>
__device__ uint32_t masked_or(uint32_t x) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(x), "n"(mask), "n"(bits));
  return out;
}

}  // namespace pf::kernels
