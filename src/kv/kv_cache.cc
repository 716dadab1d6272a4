#include "kv/kv_cache.h"

#include <algorithm>

#include "base/check.h"

namespace pf {

KvCache::KvCache(const Options& options)
    : pool_(options.n_blocks, options.block_tokens, options.n_planes),
      index_(options.n_blocks, options.block_tokens),
      prefix_caching_(options.prefix_caching) {}

int64_t KvCache::blocks_for(int64_t n_tokens) const {
  return (n_tokens + block_tokens() - 1) / block_tokens();
}

BlockId KvCache::take_block() {
  if (pool_.n_free() == 0) {
    pool_.release(index_.evict());
    ++stats_.n_evicted_blocks;
  }
  return *pool_.allocate();
}

void KvCache::hold(BlockId id) {
  if (index_.idle(id)) index_.set_busy(id);
  pool_.retain(id);
}

void KvCache::give_back(BlockId id) {
  pool_.release(id);
  if (index_.contains(id) && pool_.references(id) == 1) index_.set_idle(id);
}

KvCache::PrefixHit KvCache::find_prefix(std::span<const int32_t> tokens, const std::string& salt,
                                        int64_t limit) const {
  PrefixHit hit;
  BlockId at = kNoBlock;
  size_t p = static_cast<size_t>(block_tokens());
  limit = std::min(limit, static_cast<int64_t>(tokens.size()));
  while (prefix_caching_ && hit.n_tokens + block_tokens() <= limit) {
    at = index_.find(salt, at, tokens.subspan(static_cast<size_t>(hit.n_tokens), p));
    if (at == kNoBlock) break;
    hit.n_tokens += block_tokens();
    hit.n_cached += index_.idle(at);
  }
  return hit;
}

int64_t KvCache::acquire_prefix(BlockTable* table, std::span<const int32_t> tokens,
                                const std::string& salt, int64_t limit) {
  check(table->blocks.empty(), "a prefix starts an empty table");
  table->filled.assign(static_cast<size_t>(n_planes()), 0);
  table->n_indexed = 0;
  stats_.n_queried_tokens += static_cast<int64_t>(tokens.size());
  size_t p = static_cast<size_t>(block_tokens());
  size_t end =
      static_cast<size_t>(std::clamp<int64_t>(limit, 0, static_cast<int64_t>(tokens.size())));
  BlockId at = kNoBlock;
  for (size_t begin = 0; prefix_caching_ && begin + p <= end; begin += p) {
    at = index_.find(salt, at, tokens.subspan(begin, p));
    if (at == kNoBlock) break;
    hold(at);
    table->blocks.push_back(at);
    ++table->n_indexed;
  }
  see_filled(table);
  int64_t n_hit = int64_t{table->n_indexed} * block_tokens();
  stats_.n_hit_tokens += n_hit;
  return n_hit;
}

bool KvCache::reserve(BlockTable* table, int64_t n_tokens) {
  table->filled.resize(static_cast<size_t>(n_planes()), 0);
  int64_t n_new = blocks_for(n_tokens) - static_cast<int64_t>(table->blocks.size());
  if (n_new > n_available()) return false;
  for (; n_new > 0; --n_new) table->blocks.push_back(take_block());
  return true;
}

void KvCache::commit(BlockTable* table, int32_t plane, std::span<const int32_t> tokens,
                     int64_t n_tokens, const std::string& salt) {
  int64_t p = block_tokens();
  check(n_tokens <= static_cast<int64_t>(tokens.size()), "K and V of tokens that do not exist");
  check(n_tokens <= static_cast<int64_t>(table->blocks.size()) * p, "K and V beyond the table");
  int64_t& filled = table->filled[static_cast<size_t>(plane)];
  for (int64_t b = filled / p; b * p < n_tokens; ++b) {
    BlockId id = table->blocks[static_cast<size_t>(b)];
    int32_t n = static_cast<int32_t>(std::min(p, n_tokens - b * p));
    if (pool_.filled(id, plane) >= n) continue;
    debug_check(plane != kTargetPlane || pool_.references(id) == 1, "a shared block was written");
    pool_.set_filled(id, plane, n);
  }
  filled = std::max(filled, n_tokens);
  if (plane == kTargetPlane && prefix_caching_) index_full_blocks(table, tokens, salt);
  see_filled(table);
}

void KvCache::index_full_blocks(BlockTable* table, std::span<const int32_t> tokens,
                                const std::string& salt) {
  size_t p = static_cast<size_t>(block_tokens());
  for (;; ++table->n_indexed) {
    size_t b = static_cast<size_t>(table->n_indexed);
    if (static_cast<int64_t>((b + 1) * p) > table->filled[kTargetPlane]) return;
    BlockId parent = b > 0 ? table->blocks[b - 1] : kNoBlock;
    BlockId own = table->blocks[b];
    auto text = tokens.subspan(b * p, p);
    BlockId known = index_.find(salt, parent, text);
    if (known == kNoBlock) {
      index_.insert(salt, parent, text, own);
      pool_.retain(own);
    } else if (known != own) {
      if (!covers(known, own)) return;
      hold(known);
      table->blocks[b] = known;
      give_back(own);
    }
  }
}

bool KvCache::covers(BlockId a, BlockId b) const {
  for (int32_t plane = 0; plane < n_planes(); ++plane)
    if (pool_.filled(a, plane) < pool_.filled(b, plane)) return false;
  return true;
}

void KvCache::see_filled(BlockTable* table) const {
  int64_t p = block_tokens();
  int64_t n_slots = static_cast<int64_t>(table->blocks.size()) * p;
  for (int32_t plane = 0; plane < n_planes(); ++plane) {
    int64_t& filled = table->filled[static_cast<size_t>(plane)];
    while (filled < n_slots) {
      int64_t b = filled / p;
      int64_t there = b * p + pool_.filled(table->blocks[static_cast<size_t>(b)], plane);
      if (there <= filled) break;
      filled = there;
    }
  }
}

void KvCache::trim(BlockTable* table, int64_t n_tokens) {
  for (int64_t filled : table->filled) check(filled <= n_tokens, "committed tokens were trimmed");
  for (int64_t keep = blocks_for(n_tokens); static_cast<int64_t>(table->blocks.size()) > keep;) {
    give_back(table->blocks.back());
    table->blocks.pop_back();
  }
}

KvCache::Fork KvCache::fork(const BlockTable& from, int64_t n_tokens, BlockTable* to) {
  check(to->blocks.empty(), "a fork starts an empty table");
  check(n_tokens <= (from.filled.empty() ? 0 : from.filled[kTargetPlane]),
        "a fork of tokens that are not there");
  int64_t p = block_tokens();
  size_t n_full = static_cast<size_t>(n_tokens / p);
  Fork fork{.ok = true, .has_copy = n_tokens % p != 0};
  if (fork.has_copy && n_available() == 0) return {};
  to->blocks.assign(from.blocks.begin(), from.blocks.begin() + static_cast<std::ptrdiff_t>(n_full));
  for (BlockId id : to->blocks) hold(id);
  to->n_indexed = std::min(from.n_indexed, static_cast<int32_t>(n_full));
  to->filled = from.filled;
  to->filled.resize(static_cast<size_t>(n_planes()), 0);
  for (int64_t& filled : to->filled) filled = std::min(filled, n_tokens);
  if (!fork.has_copy) return fork;
  fork.copy = {from.blocks[n_full], take_block()};
  for (int32_t plane = 0; plane < n_planes(); ++plane)
    pool_.set_filled(
        fork.copy.to, plane,
        std::min(pool_.filled(fork.copy.from, plane), static_cast<int32_t>(n_tokens % p)));
  to->blocks.push_back(fork.copy.to);
  return fork;
}

void KvCache::release(BlockTable* table) {
  for (; !table->blocks.empty(); table->blocks.pop_back()) give_back(table->blocks.back());
  table->n_indexed = 0;
  table->filled.assign(static_cast<size_t>(n_planes()), 0);
}

}  // namespace pf
