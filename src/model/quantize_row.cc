// Groups of 32 weights as blocks of a GGUF file: the numbers come from quantize_search.h.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "model/quantize.h"
#include "model/quantize_search.h"

namespace pf {
namespace {

constexpr int kGroup = kQuantGroup;
constexpr float kLargest = 65504;  // of binary16
constexpr int64_t kAtOnce = 64;    // groups between the search and the blocks

std::byte* put_f16(std::byte* out, float v) {
  f16 h = to_f16(v);
  std::memcpy(out, &h.bits, 2);
  return out + 2;
}

// 16 bytes: q[0..15] in the low nibbles, q[16..31] in the high ones.
void put_nibbles(std::byte* out, const float* q, int offset) {
  for (int j = 0; j < kGroup / 2; ++j) {
    int low = static_cast<int>(q[j]) + offset, high = static_cast<int>(q[j + 16]) + offset;
    out[j] = static_cast<std::byte>(low | high << 4);
  }
}

void write_block(TensorType type, float d, float m, const float* q, std::byte* out) {
  if (type == TensorType::kQ4_1) {
    put_nibbles(put_f16(put_f16(out, d), m), q, 0);
  } else if (type == TensorType::kQ4_0) {
    put_nibbles(put_f16(out, d), q, 8);
  } else {
    out = put_f16(out, d);
    for (int j = 0; j < kGroup; ++j)
      out[j] = static_cast<std::byte>(static_cast<int8_t>(static_cast<int>(q[j])));
  }
}

}  // namespace

Status quantize_row(TensorType type, const float* x, int64_t n, std::byte* out) {
  check(can_quantize(type), "a type without a quantiser");
  check(n % kGroup == 0, "a row that is no whole number of groups");
  bool ok = true;
  for (int64_t i = 0; i < n; ++i) ok &= std::fabs(x[i]) <= kLargest;  // false for NaN
  if (!ok) return invalid("holds NaN, infinity or a magnitude above 65504");
  static const QuantSearcher search = choose_quant_searcher();
  int64_t bytes = block_shape(type).bytes;
  float q[kAtOnce * kGroup], d[kAtOnce], m[kAtOnce];
  QuantSearch s;
  s.q = q, s.d = d, s.m = m;
  s.has_minimum = type == TensorType::kQ4_1;
  s.low = type == TensorType::kQ4_1 ? 0 : type == TensorType::kQ4_0 ? -8 : -127;
  s.high = type == TensorType::kQ4_1 ? 15 : type == TensorType::kQ4_0 ? 7 : 127;
  s.nearest_level = type == TensorType::kQ4_0 ? -8 : 127;
  for (int64_t first = 0; first < n / kGroup; first += kAtOnce) {
    s.x = x + first * kGroup;
    s.n_groups = std::min(kAtOnce, n / kGroup - first);
    search(s);
    for (int64_t g = 0; g < s.n_groups; ++g)
      write_block(type, d[g], m[g], q + g * kGroup, out + (first + g) * bytes);
  }
  return {};
}

}  // namespace pf
