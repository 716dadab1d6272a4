#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/block_pool.h"

namespace pf {

// A radix tree over full blocks. A node is an indexed block; its key is the node above it and the
// block's P tokens, which are compared and never trusted to a hash. Each cache salt has a root of
// its own, so two salts have no node in common.
//
// Blocks that no table holds are idle and stand in a list, least recently used first. Who holds a
// node holds every node above it and gives the deepest back first, so in the list a node stands
// behind all of its children: the head is always a leaf, and eviction is O(1) and exact LRU.
//
// Node i is block i: memory is fixed when the index is made, but for the names of the salts. The
// owner of the pool keeps one reference for every indexed block.
class PrefixIndex {
 public:
  PrefixIndex(int32_t n_blocks, int32_t block_tokens);

  // The child of `parent` (kNoBlock: of the salt's root) with these P tokens, or kNoBlock.
  BlockId find(const std::string& salt, BlockId parent, std::span<const int32_t> tokens) const;

  // Requires: find(...) == kNoBlock; `block` is not indexed and full; `parent` is indexed under
  // `salt` and not idle.
  void insert(const std::string& salt, BlockId parent, std::span<const int32_t> tokens,
              BlockId block);

  bool contains(BlockId block) const { return node(block).indexed; }
  bool idle(BlockId block) const { return node(block).newer != kNoBlock; }
  BlockId parent(BlockId block) const {  // kNoBlock: it stands below a root
    return node(block).parent < 0 ? kNoBlock : node(block).parent;
  }

  void set_idle(BlockId block);  // the most recently used one now. Requires: indexed, not idle
  void set_busy(BlockId block);  // Requires: idle
  BlockId evict();               // forgets the least recently used block. Requires: n_idle() > 0

  int32_t n_idle() const { return n_idle_; }
  int32_t n_indexed() const { return n_indexed_; }
  int32_t n_salts() const { return static_cast<int32_t>(roots_.size()); }
  int64_t n_comparisons() const { return n_comparisons_; }  // nodes looked at by find, ever

  void check_integrity() const;  // dies with the first invariant that does not hold

 private:
  struct Node {
    bool indexed = false;
    int32_t parent = 0;  // block id, or -1 - root
    int32_t n_children = 0;
    uint64_t hash = 0;
    BlockId next_in_bucket = kNoBlock;
    BlockId older = kNoBlock, newer = kNoBlock;  // the idle list, closed by node N
  };
  struct Root {
    std::string salt;
    int32_t n_children = 0;
  };

  const Node& node(BlockId id) const { return nodes_[static_cast<size_t>(id)]; }
  Node& node(BlockId id) { return nodes_[static_cast<size_t>(id)]; }
  int32_t& n_children(int32_t parent);
  int32_t make_root(const std::string& salt);
  void forget(BlockId block);
  uint64_t hash_of(int32_t parent, std::span<const int32_t> tokens) const;
  BlockId& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  BlockId find_below(int32_t parent, uint64_t hash, std::span<const int32_t> tokens) const;

  size_t block_tokens_;
  uint64_t seed_;                 // drawn anew each time: nobody can aim at one bucket
  std::vector<Node> nodes_;       // [N + 1], the last one closes the idle list
  std::vector<int32_t> tokens_;   // [N, P]
  std::vector<BlockId> buckets_;  // [power of two >= N]
  std::unordered_map<std::string, int32_t> roots_;  // salt -> index into root_
  std::vector<Root> root_;
  std::vector<int32_t> free_roots_;
  int32_t n_idle_ = 0, n_indexed_ = 0;
  mutable int64_t n_comparisons_ = 0;
};

}  // namespace pf
