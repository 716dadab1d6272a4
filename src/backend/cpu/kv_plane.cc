#include "backend/cpu/kv_plane.h"

#include <cstring>

namespace pf {

KvPlane::KvPlane(int64_t n_layers, int32_t n_blocks, int64_t n_kv_heads, int32_t block_tokens,
                 int64_t head_width, bool f32)
    : n_layers_(n_layers),
      n_blocks_(n_blocks),
      n_kv_heads_(n_kv_heads),
      block_tokens_(block_tokens),
      head_width_(head_width),
      element_bytes_(f32 ? 4 : 2),
      group_(std::gcd(int64_t{block_tokens}, kKeyGroup)),
      data_(static_cast<size_t>(n_layers * n_blocks * 2 * n_kv_heads * block_tokens * head_width *
                                element_bytes_)) {}

void KvPlane::store(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head,
                    const float* key, const float* value) {
  uint32_t* to = key_of(layer, s, slot, kv_head);
  std::byte* to_value = value_of(layer, s, slot, kv_head);
  if (f32()) {
    for (int64_t d = 0; d < head_width_; ++d) to[d * group_] = std::bit_cast<uint32_t>(key[d]);
    std::memcpy(to_value, value, static_cast<size_t>(head_width_) * sizeof(float));
    return;
  }
  for (int64_t d = 0; d < head_width_; d += 2)
    to[d / 2 * group_] = to_bf16(key[d]).bits | uint32_t{to_bf16(key[d + 1]).bits} << 16;
  for (int64_t d = 0; d < head_width_; ++d)
    reinterpret_cast<bf16*>(to_value)[d] = to_bf16(value[d]);
}

void KvPlane::gather(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head, int64_t to,
                     std::byte* keys, std::byte* values) const {
  const uint32_t* from = key_of(layer, s, slot, kv_head);
  uint32_t* out = reinterpret_cast<uint32_t*>(keys) + to;
  for (int64_t w = 0; w < n_words(); ++w) out[w * kKeyGroup] = from[w * group_];
  size_t bytes = static_cast<size_t>(head_width_ * element_bytes_);
  std::memcpy(values + static_cast<size_t>(to) * bytes, value_of(layer, s, slot, kv_head), bytes);
}

void KvPlane::copy_block(BlockCopy copy) {
  size_t bytes = static_cast<size_t>(n_layers_ * 2 * n_kv_heads_ * block_tokens_ * head_width_ *
                                     element_bytes_);
  std::memcpy(at(0, copy.to, 0, 0, 0), at(0, copy.from, 0, 0, 0), bytes);
}

void KvPlane::move_slot(const Segment& s, int64_t from, int64_t to) {
  size_t bytes = static_cast<size_t>(head_width_ * element_bytes_);
  for (int64_t l = 0; l < n_layers_; ++l)
    for (int64_t g = 0; g < n_kv_heads_; ++g) {
      const uint32_t* source = key_of(l, s, from, g);
      uint32_t* key = key_of(l, s, to, g);
      for (int64_t w = 0; w < n_words(); ++w) key[w * group_] = source[w * group_];
      std::memcpy(value_of(l, s, to, g), value_of(l, s, from, g), bytes);
    }
}

}  // namespace pf
