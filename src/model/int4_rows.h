#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/status.h"
#include "model/tensor.h"

namespace pf {

inline constexpr int64_t kInt4Group = 32;

// One row of K weights as 4-bit numbers in groups of 32: w = d q + m.
struct Int4Row {
  uint8_t* q;  // [K], 0..15
  f16 *d, *m;  // [K / 32]
};

// Reads row `row` of a matrix into `out`: as it stands where the file holds Q4_0 or Q4_1, else
// quantised as Q4_1 (quantize.h). Refuses what quantize_row refuses. Requires: K % 32 == 0.
Status read_int4_row(const Tensor& tensor, int64_t row, const Int4Row& out);

}  // namespace pf
