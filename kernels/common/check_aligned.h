#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>

#include "base/check.h"

namespace pf::kernels {

// What kernels move 16 bytes at a time must begin at a multiple of 16 (null is one: no such array).
inline void check_aligned(std::initializer_list<const void*> arrays,
                          std::source_location at = std::source_location::current()) {
  for (const void* p : arrays)
    check(reinterpret_cast<uintptr_t>(p) % 16 == 0, "an array is not aligned to 16 bytes", at);
}

}  // namespace pf::kernels
