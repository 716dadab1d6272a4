// What must always hold between tables, pool and index, checked in one sweep over all blocks. Too
// slow for a step; the engine runs it when idle.
#include <algorithm>

#include "base/check.h"
#include "kv/kv_cache.h"

namespace pf {

void KvCache::check_table(const BlockTable& table) const {
  int64_t p = block_tokens();
  check(table.n_indexed >= 0 && table.n_indexed <= static_cast<int32_t>(table.blocks.size()),
        "a table counts more indexed blocks than it has");
  BlockId above = kNoBlock;
  for (int32_t b = 0; b < table.n_indexed; ++b) {
    BlockId id = table.blocks[static_cast<size_t>(b)];
    check(index_.contains(id) && index_.parent(id) == above,
          "a table's indexed blocks are no path of the index");
    above = id;
  }
  if (table.blocks.empty()) return;
  check(table.filled.size() == static_cast<size_t>(n_planes()), "a table lacks a plane");
  for (int32_t plane = 0; plane < n_planes(); ++plane) {
    int64_t filled = table.filled[static_cast<size_t>(plane)];
    check(filled <= static_cast<int64_t>(table.blocks.size()) * p, "filled beyond the table");
    for (int64_t b = 0; b * p < filled; ++b)
      check(
          pool_.filled(table.blocks[static_cast<size_t>(b)], plane) >= std::min(p, filled - b * p),
          "a table counts tokens that its blocks lack");
  }
  check(int64_t{table.n_indexed} * p <= table.filled[kTargetPlane], "an indexed block is not full");
}

void KvCache::check_integrity(std::span<const BlockTable* const> live) const {
  std::vector<int32_t> held(static_cast<size_t>(n_blocks()), 0);
  for (const BlockTable* table : live) {
    check_table(*table);
    for (BlockId id : table->blocks) ++held[static_cast<size_t>(id)];
  }
  int32_t n_free = 0;
  for (BlockId id = 0; id < n_blocks(); ++id) {
    int32_t n_tables = held[static_cast<size_t>(id)];
    bool indexed = index_.contains(id);
    check(pool_.references(id) == n_tables + indexed, "a block's references are miscounted");
    n_free += pool_.references(id) == 0;
    check(index_.idle(id) == (indexed && n_tables == 0), "an idle block is held, or the reverse");
    for (int32_t plane = 0; plane < n_planes(); ++plane)
      check(pool_.filled(id, plane) <= block_tokens(), "a block is filled beyond its slots");
    if (indexed || n_tables > 1)
      check(pool_.filled(id, kTargetPlane) == block_tokens(), "a shared block is not full");
  }
  check(n_free == pool_.n_free(), "free and used blocks do not add up to all blocks");
  index_.check_integrity();
}

}  // namespace pf
