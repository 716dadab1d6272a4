#pragma once

#include <cstdint>
#include <numeric>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "batch/batch.h"

namespace pf {

// K and V of one model in bf16 or f32: [block][layer][K, V][G], so that the blocks in use take few
// pages, and there the P tokens of a block in groups of gcd(P, 16). Values are [P][D]; keys lie
// turned, [P / group][D / 2][group] pairs (f32: [P / group][D][group]), so that attention reads the
// scores of 16 keys from one register and no key is turned twice.
class KvPlane {
 public:
  KvPlane(int64_t n_layers, int32_t n_blocks, int64_t n_kv_heads, int32_t block_tokens,
          int64_t head_width, bool f32);

  // One token's key and value of one head [D], rounded to the plane's type, into a logical slot.
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
  int64_t group_bytes() const { return kKeyGroup * head_width_ * element_bytes_; }

  void copy_block(BlockCopy copy);
  void move_slot(const Segment& s, int64_t from, int64_t to);

  bool f32() const { return element_bytes_ == 4; }
  int64_t bytes() const { return static_cast<int64_t>(data_.bytes()); }
  int64_t block_tokens() const { return block_tokens_; }
  int64_t head_width() const { return head_width_; }

 private:
  std::byte* at(int64_t layer, BlockId block, int which, int64_t kv_head, int64_t group) const {
    int64_t heads = ((block * n_layers_ + layer) * 2 + which) * n_kv_heads_ + kv_head;
    return data_.as() + (heads * block_tokens_ + group * group_) * head_width_ * element_bytes_;
  }
  // A token's first key word, one of n_words() that are `group_` words apart; and its value.
  uint32_t* key_of(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head) const {
    int64_t in_block = slot % block_tokens_;
    std::byte* group = at(layer, s.blocks[static_cast<size_t>(slot / block_tokens_)], 0, kv_head,
                          in_block / group_);
    return reinterpret_cast<uint32_t*>(group) + in_block % group_;
  }
  std::byte* value_of(int64_t layer, const Segment& s, int64_t slot, int64_t kv_head) const {
    return at(layer, s.blocks[static_cast<size_t>(slot / block_tokens_)], 1, kv_head, 0) +
           slot % block_tokens_ * head_width_ * element_bytes_;
  }
  int64_t n_words() const { return head_width_ * element_bytes_ / 4; }

  int64_t n_layers_, n_blocks_, n_kv_heads_, block_tokens_, head_width_, element_bytes_, group_;
  Buffer data_;
};

}  // namespace pf
