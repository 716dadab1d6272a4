#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/status.h"
#include "model/tensor.h"

namespace pf {

inline constexpr int64_t kInt4Group = 32;

// Weights that share a scale in rows of all these tensors (of one width): ModelConfig::int4_group
// where the file holds them in 4 bits and their width is a multiple of it, else 32.
int int4_group_of(int int4_group, std::span<const Tensor* const> tensors);

// The 32 weights of one Q4_0 or Q4_1 block, w = d q + m: nibble i of the low halves is weight i, of
// the high halves weight 16 + i.
void read_int4_block(const std::byte* block, bool has_minimum, uint8_t* q, f16* d, f16* m);

// One row of K weights as 4-bit numbers in groups: w = d q + m.
struct Int4Row {
  uint8_t* q;  // [K], 0..15
  f16 *d, *m;  // [K / group]
};

// Reads row `row` of a matrix into `out`: as it stands where the file holds Q4_0 or Q4_1, else
// quantised as Q4_1 (quantize.h). Refuses what quantize_row refuses, and groups of 128 whose blocks
// have different scales. Requires: group of int4_group_of; K is a multiple of it.
Status read_int4_row(const Tensor& tensor, int64_t row, int group, const Int4Row& out);

}  // namespace pf
