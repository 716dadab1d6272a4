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
  std::vector<int64_t> filled;  // [planes] leading committed tokens whose K and V are there
};

// Block tables over one pool and one prefix index. Single-threaded: the engine thread owns it.
//
// A block that is full in the target's plane is never written there again; so it may be shared, by
// a prefix hit, a fork, or because commit found that the index holds the same tokens already.
// Draft planes of a shared block may lag and fill later, by whoever comes first: every table that
// holds the block would write the same values.
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
  int32_t n_cached() const { return index_.n_idle(); }  // only the index holds them: free to take
  int32_t n_available() const { return pool_.n_free() + index_.n_idle(); }  // free + cached
  int32_t n_in_use() const { return n_blocks() - n_available(); }
  int64_t blocks_for(int64_t n_tokens) const;

  // What acquire_prefix would find; changes nothing.
  struct PrefixHit {
    int64_t n_tokens = 0;
    int32_t n_cached = 0;  // its blocks that no table holds: acquiring takes them from n_available
  };
  PrefixHit find_prefix(std::span<const int32_t> tokens, const std::string& salt,
                        int64_t limit) const;

  // Starts a table with the longest indexed prefix of `tokens` under `salt`, at most `limit`
  // tokens, whole blocks; returns how many tokens that is. Requires: an empty table.
  int64_t acquire_prefix(BlockTable* table, std::span<const int32_t> tokens,
                         const std::string& salt, int64_t limit);

  // Grows the table to hold n_tokens slots, evicting cached blocks (least recently used first)
  // where needed. False: not enough blocks, and nothing has changed.
  bool reserve(BlockTable* table, int64_t n_tokens);

  // States that the first n_tokens of `tokens` have their K and V in `plane`; lowers nothing. With
  // the target's plane, blocks that became full enter the index. Where the index holds the same
  // tokens already, the table changes over to that block, provided that no plane loses by it (else
  // it keeps its own and asks again at the next commit). So in a step the target's plane comes
  // last: after the slot moves, and after the other planes' commits, or what they state would be
  // stated of a block that they have not written. Requires: n_tokens <= tokens.size() and <= the
  // slots.
  void commit(BlockTable* table, int32_t plane, std::span<const int32_t> tokens, int64_t n_tokens,
              const std::string& salt);

  // Gives blocks behind n_tokens slots back (rejected drafts need no call: they are beyond filled).
  // Requires: n_tokens >= every filled count.
  void trim(BlockTable* table, int64_t n_tokens);

  // A second table over the first n_tokens: full blocks shared, a partly filled one copied
  // (`copy`, when has_copy). Not ok: no block for the copy.
  // Requires: n_tokens <= the target's filled count; an empty `to`.
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
  const PrefixIndex& prefix_index() const { return index_; }

  // Checks every invariant against the live tables; dies with the first that does not hold.
  void check_integrity(std::span<const BlockTable* const> live) const;

 private:
  BlockId take_block();                     // Requires: n_available() > 0
  void hold(BlockId id);                    // one more table
  void give_back(BlockId id);               // one table less
  bool covers(BlockId a, BlockId b) const;  // a is filled at least as far as b in every plane
  void index_full_blocks(BlockTable* table, std::span<const int32_t> tokens,
                         const std::string& salt);
  void see_filled(BlockTable* table) const;  // counts what others have filled in shared blocks
  void check_table(const BlockTable& table) const;

  BlockPool pool_;
  PrefixIndex index_;
  PrefixStats stats_;
  bool prefix_caching_;
};

}  // namespace pf
