#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_index.h"

namespace pf {

inline constexpr int32_t kTargetPlane = 0;

// The blocks of one sequence: logical slot s lies in blocks[s / P] at s % P.
struct BlockTable {
  std::vector<BlockId> blocks;
  int32_t n_indexed = 0;        // leading blocks that the prefix index knows
  std::vector<int64_t> filled;  // per plane: leading committed tokens whose K and V are there
};

// Block tables over one pool and one prefix index. Single-threaded: the engine thread owns it.
class KvCache {
 public:
  struct Options {
    int32_t n_blocks = 0;
    int32_t block_tokens = 16;
    int32_t n_planes = 1;
    bool prefix_caching = true;
  };
  explicit KvCache(const Options& options);

  int32_t block_tokens() const { return pool_.block_tokens(); }
  int32_t n_planes() const { return pool_.n_planes(); }
  int32_t n_blocks() const { return pool_.n_blocks(); }
  int32_t n_cached() const;     // blocks that only the index holds: free for the asking
  int32_t n_available() const;  // free + cached
  int32_t n_in_use() const { return n_blocks() - n_available(); }
  int64_t blocks_for(int64_t n_tokens) const;

  // Starts a table with the longest indexed prefix of `tokens` under `salt`, at most `limit`
  // tokens, whole blocks; returns how many tokens that is. Requires: an empty table.
  int64_t acquire_prefix(BlockTable* table, std::span<const int32_t> tokens,
                         const std::string& salt, int64_t limit);

  // Grows the table to hold n_tokens slots, evicting cached blocks (least recently used first)
  // where needed. False: not enough blocks, and nothing has changed.
  bool reserve(BlockTable* table, int64_t n_tokens);

  // States that the first n_tokens of `tokens` have their K and V in `plane`; never lowers a
  // shared block's count. With the target plane, blocks that became full enter the index.
  void commit(BlockTable* table, int32_t plane, std::span<const int32_t> tokens, int64_t n_tokens,
              const std::string& salt);

  // Gives blocks behind n_tokens slots back (rejected drafts need no call: they are beyond filled).
  void trim(BlockTable* table, int64_t n_tokens);

  // A second table over the first n_tokens: full blocks shared, a partly filled one copied
  // (*copy, when the return value says so in has_copy). False: no block for the copy.
  struct Fork {
    bool ok = false, has_copy = false;
    BlockCopy copy{};
  };
  Fork fork(const BlockTable& from, int64_t n_tokens, BlockTable* to);

  void release(BlockTable* table);  // everything back; indexed blocks stay cached

  struct PrefixStats {
    int64_t n_queried_tokens = 0, n_hit_tokens = 0, n_evicted_blocks = 0;
  };
  const PrefixStats& prefix_stats() const { return stats_; }

  // Checks every invariant against the live tables; dies with the first that does not hold.
  void check_integrity(std::span<const BlockTable* const> live) const;

 private:
  BlockPool pool_;
  PrefixIndex index_;
  PrefixStats stats_;
  bool prefix_caching_;
};

}  // namespace pf
