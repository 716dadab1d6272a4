#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace pf::kernels {

// A matrix [N, K] of 4-bit numbers q in groups along k, each with a scale d, or a scale and a
// minimum m:  w = d (q - 8), or w = d q + m.  K is a multiple of the group.
struct Int4Shape {
  int64_t N = 0, K = 0;
  int group = 32;  // 32 or 128
  bool has_min = false;
};

// What gemm_int4 reads, in one piece: units of 32 features, steps of 64 k, zeros behind N and K.
//   numbers  [unit][step][half of 32 k][lane][k16 i][tile m] words of 8 numbers: what lane 4 g + c
//            needs as mma's A operand at once. Number h + 2 u + 4 v of a word is feature
//            4 g + 2 m + h at k = 64 step + 32 half + 16 i + 2 c + 8 u + v.
//   scales   [unit][group]: f16 d [32 features], then f16 m [32 features] where there are any
inline int64_t n_units(const Int4Shape& s) { return (s.N + 31) / 32; }
inline int64_t n_steps(const Int4Shape& s) { return (s.K + 63) / 64; }
inline int64_t n_groups(const Int4Shape& s) {  // of whole steps
  return s.group == 32 ? 2 * n_steps(s) : (n_steps(s) + 1) / 2;
}
inline int64_t numbers_bytes(const Int4Shape& s) { return n_units(s) * n_steps(s) * 1024; }
inline int64_t group_bytes(const Int4Shape& s) { return s.has_min ? 128 : 64; }
inline int64_t packed_int4_bytes(const Int4Shape& s) {
  return numbers_bytes(s) + n_units(s) * n_groups(s) * group_bytes(s);
}

// Writes rows [first, first + n) into the packed matrix `out`.
//   q  [n, K], one number of 0..15 per byte     d, m  [n, K / group]; m is null without minimums
// `out` holds packed_int4_bytes(shape), zeroed before the first row. Threads may pack at the same
// time where none shares a unit of 32 rows with another.
void pack_int4_for_mma(const Int4Shape& shape, int64_t first, int64_t n, const uint8_t* q,
                       const f16* d, const f16* m, std::byte* out);

}  // namespace pf::kernels
