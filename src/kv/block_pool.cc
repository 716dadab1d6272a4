#include "kv/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace pf {

BlockPool::BlockPool(int32_t n_blocks, int32_t block_tokens, int32_t n_planes)
    : block_tokens_(block_tokens), n_planes_(n_planes) {
  check(n_blocks >= 1 && block_tokens >= 1 && n_planes >= 1, "a pool needs blocks and a plane");
  references_.resize(static_cast<size_t>(n_blocks));
  filled_.resize(references_.size() * static_cast<size_t>(n_planes));
  free_.reserve(references_.size());
  for (BlockId id = n_blocks; id-- > 0;) free_.push_back(id);  // block 0 goes out first
}

std::optional<BlockId> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  BlockId id = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(id)] = 1;
  std::fill_n(filled_.begin() + static_cast<std::ptrdiff_t>(at(id, 0)), n_planes_, 0);
  return id;
}

void BlockPool::retain(BlockId id) {
  check(references(id) > 0, "a free block was retained");
  ++references_[static_cast<size_t>(id)];
}

void BlockPool::release(BlockId id) {
  check(references(id) > 0, "a free block was released");
  if (--references_[static_cast<size_t>(id)] == 0) free_.push_back(id);
}

void BlockPool::set_filled(BlockId id, int32_t plane, int32_t n_tokens) {
  check(references(id) > 0, "a free block was filled");
  check(n_tokens >= 0 && n_tokens <= block_tokens_, "a block was filled beyond its slots");
  filled_[at(id, plane)] = n_tokens;
}

}  // namespace pf
