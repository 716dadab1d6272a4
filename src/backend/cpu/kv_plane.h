#pragma once

#include <cstdint>
#include <numeric>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "batch/batch.h"

namespace pf {

// K and V of one model: [block][layer][K, V][G], so that the blocks in use take few pages, and
// there the P tokens of a block in groups of gcd(P, 16). Values of a group are [group][D]; keys lie
// turned, [D][group] floats, [D / 2][group] pairs of bf16 or [D / 4][group] quads of int8, so that
// attention reads the scores of 16 keys from one register and no key is turned twice. Behind the
// int8 of a group stand their scales f32 [group], so that whatever copies or moves a token takes
// them along.
class KvPlane {
 public:
  KvPlane(int64_t n_layers, int32_t n_blocks, int64_t n_kv_heads, int32_t block_tokens,
          int64_t head_width, KvType type);

  // One token's key and value of one head [D], rounded to the plane's type, into a logical slot.
  // int8: |error| <= scale (1/2 + 2^-15), the second part from the roundings of float; a row that
  // is not finite is read back as NaN throughout.
  void store(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head, const float* key,
             const float* value);

  // Whether 16 neighbouring slots lie as a kernel reads them; else they are gathered.
  bool in_groups() const { return group_ == kKeyGroup; }
  // Keys (which = 0) or values (1) of the group that holds a logical slot. Requires: in_groups().
  const std::byte* group(int64_t layer, const Segment& s, int64_t slot, int which,
                         int64_t kv_head) const {
    return at(layer, s.blocks[static_cast<size_t>(slot / block_tokens_)], which, kv_head,
              slot % block_tokens_ / kKeyGroup);
  }
  // Copies one token's key and value to place `to` of a group of 16 of the caller.
  void gather(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head, int64_t to,
              std::byte* keys, std::byte* values) const;
  int64_t group_bytes() const { return kKeyGroup * token_bytes(); }

  void copy_block(BlockCopy copy);
  void move_slot(const Segment& s, int64_t from, int64_t to);

  KvType type() const { return type_; }
  int64_t bytes() const { return static_cast<int64_t>(data_.bytes()); }
  int64_t block_tokens() const { return block_tokens_; }
  int64_t head_width() const { return head_width_; }

 private:
  std::byte* at(int64_t layer, BlockId block, int which, int64_t kv_head, int64_t group) const {
    int64_t heads = ((block * n_layers_ + layer) * 2 + which) * n_kv_heads_ + kv_head;
    return data_.as() + (heads * block_tokens_ + group * group_) * token_bytes();
  }
  // A token's first key word, one of n_words() that are `group_` words apart, its scale the last of
  // them; its value; and its value's scale (int8).
  uint32_t* key_of(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head) const {
    int64_t in_block = slot % block_tokens_;
    std::byte* group = at(layer, s.blocks[static_cast<size_t>(slot / block_tokens_)], 0, kv_head,
                          in_block / group_);
    return reinterpret_cast<uint32_t*>(group) + in_block % group_;
  }
  std::byte* value_of(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head) const {
    int64_t in_block = slot % block_tokens_;
    return at(layer, s.blocks[static_cast<size_t>(slot / block_tokens_)], 1, kv_head,
              in_block / group_) +
           in_block % group_ * row_bytes();
  }
  float* value_scale_of(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head) const {
    int64_t in_group = slot % block_tokens_ % group_;
    std::byte* first = value_of(layer, s, slot, kv_head) - in_group * row_bytes();
    return reinterpret_cast<float*>(first + group_ * row_bytes()) + in_group;
  }
  bool scaled() const { return type_ == KvType::kInt8; }
  int64_t row_bytes() const {  // of a key or value without its scale
    return head_width_ * (type_ == KvType::kF32 ? 4 : scaled() ? 1 : 2);
  }
  int64_t token_bytes() const { return row_bytes() + (scaled() ? 4 : 0); }
  int64_t n_words() const { return token_bytes() / 4; }

  KvType type_;
  int64_t n_layers_, n_kv_heads_, block_tokens_, head_width_, group_;
  Buffer data_;
};

}  // namespace pf
