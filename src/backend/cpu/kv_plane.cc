#include "backend/cpu/kv_plane.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

namespace pf {
namespace {

// x [n] -> q [n] and the scale.
float quantize(const float* x, int64_t n, int8_t* q) {
  float most = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    float a = std::fabs(x[i]);
    finite &= a <= FLT_MAX;
    most = a > most ? a : most;
  }
  if (!finite || most < 0x1p-100f) {  // below it 127 / most would overflow
    std::fill_n(q, n, int8_t{0});
    return finite ? 0.0f : NAN;
  }
  // Adding this rounds to the nearest whole number, which then stands in the lowest bits.
  constexpr float kWhole = 0x1.8p23f;
  float inverse = 127.0f / most;
  for (int64_t i = 0; i < n; ++i)
    q[i] = static_cast<int8_t>(std::bit_cast<int32_t>(x[i] * inverse + kWhole));
  return most / 127.0f;
}

}  // namespace

KvPlane::KvPlane(int64_t n_layers, int32_t n_blocks, int64_t n_kv_heads, int32_t block_tokens,
                 int64_t head_width, KvType type)
    : type_(type),
      n_layers_(n_layers),
      n_kv_heads_(n_kv_heads),
      block_tokens_(block_tokens),
      head_width_(head_width),
      group_(std::gcd(int64_t{block_tokens}, kKeyGroup)),
      data_(static_cast<size_t>(n_layers * n_blocks * 2 * n_kv_heads * block_tokens *
                                token_bytes())) {}

void KvPlane::store(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head,
                    const float* key, const float* value) {
  uint32_t* to = key_of(layer, s, slot, kv_head);
  std::byte* to_value = value_of(layer, s, slot, kv_head);
  switch (type_) {
    case KvType::kF32:
      for (int64_t d = 0; d < head_width_; ++d) to[d * group_] = std::bit_cast<uint32_t>(key[d]);
      std::memcpy(to_value, value, static_cast<size_t>(head_width_) * sizeof(float));
      return;
    case KvType::kBf16:
      for (int64_t d = 0; d < head_width_; d += 2)
        to[d / 2 * group_] = to_bf16(key[d]).bits | uint32_t{to_bf16(key[d + 1]).bits} << 16;
      for (int64_t d = 0; d < head_width_; ++d)
        reinterpret_cast<bf16*>(to_value)[d] = to_bf16(value[d]);
      return;
    case KvType::kInt8:
      alignas(4) int8_t quads[256];  // the widest head
      float scale = quantize(key, head_width_, quads);
      for (int64_t w = 0; w < head_width_ / 4; ++w) std::memcpy(to + w * group_, quads + 4 * w, 4);
      to[head_width_ / 4 * group_] = std::bit_cast<uint32_t>(scale);
      *value_scale_of(layer, s, slot, kv_head) =
          quantize(value, head_width_, reinterpret_cast<int8_t*>(to_value));
  }
}

void KvPlane::gather(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head, int64_t to,
                     std::byte* keys, std::byte* values) const {
  const uint32_t* from = key_of(layer, s, slot, kv_head);
  uint32_t* out = reinterpret_cast<uint32_t*>(keys) + to;
  for (int64_t w = 0; w < n_words(); ++w) out[w * kKeyGroup] = from[w * group_];
  std::memcpy(values + to * row_bytes(), value_of(layer, s, slot, kv_head),
              static_cast<size_t>(row_bytes()));
  if (scaled())
    reinterpret_cast<float*>(values + kKeyGroup * row_bytes())[to] =
        *value_scale_of(layer, s, slot, kv_head);
}

void KvPlane::copy_block(BlockCopy copy) {
  size_t bytes = static_cast<size_t>(n_layers_ * 2 * n_kv_heads_ * block_tokens_ * token_bytes());
  std::memcpy(at(0, copy.to, 0, 0, 0), at(0, copy.from, 0, 0, 0), bytes);
}

void KvPlane::move_slot(const Segment& s, int64_t from, int64_t to) {
  for (int64_t l = 0; l < n_layers_; ++l)
    for (int64_t g = 0; g < n_kv_heads_; ++g) {
      const uint32_t* source = key_of(l, s, from, g);
      uint32_t* key = key_of(l, s, to, g);
      for (int64_t w = 0; w < n_words(); ++w) key[w * group_] = source[w * group_];
      std::memcpy(value_of(l, s, to, g), value_of(l, s, from, g), static_cast<size_t>(row_bytes()));
      if (scaled()) *value_scale_of(l, s, to, g) = *value_scale_of(l, s, from, g);
    }
}

}  // namespace pf
