#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/status.h"
#include "model/tensor.h"

namespace pf {

inline constexpr int64_t kInt4Group = 32;

// The 32 weights of one Q4_0 or Q4_1 block, w = d q + m: nibble i of the low halves is weight i, of
// the high halves weight 16 + i.
void read_int4_block(const std::byte* block, bool has_minimum, uint8_t* q, f16* d, f16* m);

// One row of K weights as 4-bit numbers in groups of 32: w = d q + m.
struct Int4Row {
  uint8_t* q;  // [K], 0..15
  f16 *d, *m;  // [K / 32]
};

// Reads row `row` of a matrix into `out`: as it stands where the file holds Q4_0 or Q4_1, else
// quantised as Q4_1 (quantize.h). Refuses what quantize_row refuses. Requires: K % 32 == 0.
Status read_int4_row(const Tensor& tensor, int64_t row, const Int4Row& out);

}  // namespace pf
