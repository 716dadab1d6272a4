#include "kernels/pack_int4.h"

#include <cstring>

#include "base/check.h"

namespace pf::kernels {
namespace {

// Where the number of feature f (within its unit) at k (within its step) stands in the step's 1024
// bytes: the byte, and whether in its high half.
struct Place {
  int64_t byte;
  bool high;
};
Place place_of(int64_t f, int64_t k) {
  int64_t g = f / 4, m = f / 2 % 2, h = f % 2;
  int64_t half = k / 32, i = k / 16 % 2, u = k / 8 % 2, c = k / 2 % 4, v = k % 2;
  int64_t word = ((half * 32 + 4 * g + c) * 2 + i) * 2 + m, number = h + 2 * u + 4 * v;
  return {word * 4 + number / 2, h == 1};
}

}  // namespace

void pack_int4_for_mma(const Int4Shape& s, int64_t first, int64_t n, const uint8_t* q, const f16* d,
                       const f16* m, std::byte* out) {
  check(s.group == 32 || s.group == 128, "pack_int4: groups of 32 or 128 only");
  check(s.K > 0 && s.K % s.group == 0, "pack_int4: K must be a multiple of the group");
  check(first >= 0 && n >= 0 && first + n <= s.N, "pack_int4: rows outside of the matrix");
  check((m != nullptr) == s.has_min, "pack_int4: minimums and shape disagree");
  const int64_t groups = s.K / s.group;
  std::byte* scales = out + numbers_bytes(s);
  for (int64_t row = 0; row < n; ++row) {
    const int64_t unit = (first + row) / 32, f = (first + row) % 32;
    for (int64_t k = 0; k < s.K; ++k) {
      const Place at = place_of(f, k % 64);
      const uint8_t number = q[row * s.K + k];
      check(number < 16, "pack_int4: a number above 15");
      out[(unit * n_steps(s) + k / 64) * 1024 + at.byte] |=
          static_cast<std::byte>(number << (at.high ? 4 : 0));
    }
    for (int64_t group = 0; group < groups; ++group) {
      std::byte* to = scales + (unit * n_groups(s) + group) * group_bytes(s) + f * 2;
      std::memcpy(to, &d[row * groups + group].bits, 2);
      if (s.has_min) std::memcpy(to + 64, &m[row * groups + group].bits, 2);
    }
  }
}

}  // namespace pf::kernels
