#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/dtype.h"

namespace pf::kernels {

// The KV memory of one model, T [L][N][K, V][G][P][D]: a block of one layer is one stretch, and in
// it the keys (or the values) of one KV head are one tile [P, D], so that a warp's 16-byte loads
// fill whole lines. A token of a sequence lies at a `place`: block * P + offset in the block, the
// same in every layer. T is f16 or bf16; `data` is 16-byte aligned, D a multiple of 8.
//
// Or, `int8` in place of `data`, the same in int8 and beside it a scale for each row of D,
// float [L][N][K, V][G][P]: element = q * scale, q in -127..127, scale = max |row| / 127. T is then
// what attention reads of it. Both are 16-byte aligned, D a multiple of 16.
template <class T>
struct KvPlane {
  T* data = nullptr;
  int64_t n_layers = 0;      // L
  int64_t n_blocks = 0;      // N
  int64_t n_kv_heads = 0;    // G
  int64_t block_tokens = 0;  // P
  int64_t head_width = 0;    // D
  int8_t* int8 = nullptr;
  float* scales = nullptr;

  int64_t block_size() const { return 2 * n_kv_heads * block_tokens * head_width; }
  int64_t size() const { return n_layers * n_blocks * block_size(); }
  int64_t block_scales() const { return 2 * n_kv_heads * block_tokens; }
  int64_t n_scales() const { return n_layers * n_blocks * block_scales(); }
  int64_t element_bytes() const { return int8 != nullptr ? 1 : sizeof(T); }
  // What is moved 16 bytes at a time, whichever it is.
  void* bytes() const { return int8 != nullptr ? static_cast<void*>(int8) : data; }
  // One layer, as a plane of its own.
  KvPlane layer(int64_t l) const {
    const int64_t before = l * n_blocks * block_size();
    KvPlane one{nullptr, 1, n_blocks, n_kv_heads, block_tokens, head_width};
    if (int8 != nullptr)
      one.int8 = int8 + before, one.scales = scales + l * n_blocks * block_scales();
    else
      one.data = data + before;
    return one;
  }
};

}  // namespace pf::kernels
