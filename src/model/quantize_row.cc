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

constexpr int kBlock = kQuantGroup;
constexpr float kLargest = 65504;  // of binary16
constexpr int64_t kAtOnce = 64;    // blocks between the search and the file

std::byte* put_f16(std::byte* out, float v) {
  f16 h = to_f16(v);
  std::memcpy(out, &h.bits, 2);
  return out + 2;
}

// 16 bytes: q[0..15] in the low nibbles, q[16..31] in the high ones.
void put_nibbles(std::byte* out, const float* q, int offset) {
  for (int j = 0; j < kBlock / 2; ++j) {
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
    for (int j = 0; j < kBlock; ++j)
      out[j] = static_cast<std::byte>(static_cast<int8_t>(static_cast<int>(q[j])));
  }
}

}  // namespace

Status quantize_row(TensorType type, const float* x, int64_t n, std::byte* out, int group) {
  check(can_quantize(type), "a type without a quantiser");
  check(group == kBlock || (group == kWideQuantGroup && type != TensorType::kQ8_0),
        "groups are of 32 weights, or of 128 in 4 bits");
  check(n % group == 0, "a row that is no whole number of groups");
  bool ok = true;
  for (int64_t i = 0; i < n; ++i) ok &= std::fabs(x[i]) <= kLargest;  // false for NaN
  if (!ok) return invalid("holds NaN, infinity or a magnitude above 65504");
  static const QuantSearcher search = choose_quant_searcher();
  int64_t bytes = block_shape(type).bytes;
  const int64_t blocks = group / kBlock;  // of a group
  float q[kAtOnce * kBlock], d[kAtOnce], m[kAtOnce];
  QuantSearch s;
  s.q = q, s.d = d, s.m = m, s.group = group;
  s.has_minimum = type == TensorType::kQ4_1;
  s.low = type == TensorType::kQ4_1 ? 0 : type == TensorType::kQ4_0 ? -8 : -127;
  s.high = type == TensorType::kQ4_1 ? 15 : type == TensorType::kQ4_0 ? 7 : 127;
  s.nearest_level = type == TensorType::kQ4_0 ? -8 : 127;
  for (int64_t first = 0; first < n / kBlock; first += kAtOnce) {
    const int64_t some = std::min(kAtOnce, n / kBlock - first);
    s.x = x + first * kBlock;
    s.n_groups = some / blocks;
    search(s);
    for (int64_t b = 0; b < some; ++b)
      write_block(type, d[b / blocks], m[b / blocks], q + b * kBlock, out + (first + b) * bytes);
  }
  return {};
}

}  // namespace pf
