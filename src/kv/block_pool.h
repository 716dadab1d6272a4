#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pf {

using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;

struct BlockCopy {
  BlockId from, to;
};

// N blocks of P tokens, shared by several planes (one plane per resident model: its KV of the same
// tokens under the same block ids). Ids and counts only; the planes' memory belongs to backends.
// Per block: how many tables and index entries hold it, and per plane how many of its leading
// slots hold committed tokens. Invariants: free + used == N, filled <= P.
class BlockPool {
 public:
  // Requires: all >= 1.
  BlockPool(int32_t n_blocks, int32_t block_tokens, int32_t n_planes);

  int32_t n_blocks() const { return static_cast<int32_t>(references_.size()); }
  int32_t n_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t block_tokens() const { return block_tokens_; }
  int32_t n_planes() const { return n_planes_; }

  // A block with one reference and nothing filled; nothing when none is free.
  std::optional<BlockId> allocate();
  void retain(BlockId id);   // Requires: held
  void release(BlockId id);  // Requires: held; the last release frees it
  int32_t references(BlockId id) const { return references_[static_cast<size_t>(id)]; }

  int32_t filled(BlockId id, int32_t plane) const { return filled_[at(id, plane)]; }
  void set_filled(BlockId id, int32_t plane, int32_t n_tokens);  // Requires: 0 <= n_tokens <= P

 private:
  size_t at(BlockId id, int32_t plane) const {
    return static_cast<size_t>(id) * static_cast<size_t>(n_planes_) + static_cast<size_t>(plane);
  }

  int32_t block_tokens_;
  int32_t n_planes_;
  std::vector<int32_t> references_;  // [N]
  std::vector<int32_t> filled_;      // [N, planes]
  std::vector<BlockId> free_;
};

}  // namespace pf
