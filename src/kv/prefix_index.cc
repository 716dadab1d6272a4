#include "kv/prefix_index.h"

#include <algorithm>
#include <bit>
#include <random>

#include "base/check.h"

namespace pf {
namespace {

// 64 x 64 -> 128 bits, folded: every bit of the input reaches every bit of the result.
uint64_t mix(uint64_t a, uint64_t b) {
  unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

PrefixIndex::PrefixIndex(int32_t n_blocks, int32_t block_tokens)
    : block_tokens_(static_cast<size_t>(block_tokens)), seed_(random_seed()) {
  check(n_blocks >= 1 && block_tokens >= 1, "an index needs blocks");
  size_t n = static_cast<size_t>(n_blocks);
  nodes_.resize(n + 1);
  nodes_[n].older = nodes_[n].newer = n_blocks;
  tokens_.resize(n * block_tokens_);
  buckets_.resize(std::bit_ceil(n), kNoBlock);
}

uint64_t PrefixIndex::hash_of(int32_t parent, std::span<const int32_t> tokens) const {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  uint64_t h = mix(seed_ ^ static_cast<uint32_t>(parent), kOdd);
  for (int32_t t : tokens) h = mix(h ^ static_cast<uint32_t>(t), kOdd ^ seed_);
  return h;
}

BlockId PrefixIndex::find_below(int32_t parent, uint64_t hash,
                                std::span<const int32_t> tokens) const {
  BlockId at = buckets_[hash & (buckets_.size() - 1)];
  for (; at != kNoBlock; at = node(at).next_in_bucket) {
    ++n_comparisons_;
    const Node& n = node(at);
    if (n.hash != hash || n.parent != parent) continue;
    auto own =
        tokens_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(at) * tokens.size());
    if (std::equal(tokens.begin(), tokens.end(), own)) return at;
  }
  return kNoBlock;
}

BlockId PrefixIndex::find(const std::string& salt, BlockId parent,
                          std::span<const int32_t> tokens) const {
  check(tokens.size() == block_tokens_, "the index knows whole blocks only");
  if (parent == kNoBlock) {
    auto root = roots_.find(salt);
    if (root == roots_.end()) return kNoBlock;
    parent = -1 - root->second;
  }
  return find_below(parent, hash_of(parent, tokens), tokens);
}

void PrefixIndex::insert(const std::string& salt, BlockId parent, std::span<const int32_t> tokens,
                         BlockId block) {
  check(tokens.size() == block_tokens_, "the index knows whole blocks only");
  check(!contains(block), "a block is indexed once");
  check(parent == kNoBlock || (contains(parent) && !idle(parent)),
        "a block is indexed below one that its table holds");
  Node& n = node(block);
  n.indexed = true;
  n.parent = parent == kNoBlock ? make_root(salt) : parent;
  n.n_children = 0;
  n.hash = hash_of(n.parent, tokens);
  n.next_in_bucket = bucket(n.hash);
  bucket(n.hash) = block;
  std::copy(
      tokens.begin(), tokens.end(),
      tokens_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(block) * block_tokens_));
  ++n_children(n.parent);
  ++n_indexed_;
}

void PrefixIndex::set_idle(BlockId block) {
  check(contains(block) && !idle(block), "only an indexed block turns idle, and once");
  BlockId end = static_cast<BlockId>(nodes_.size()) - 1;
  Node& n = node(block);
  n.newer = end;
  n.older = node(end).older;
  node(n.older).newer = block;
  node(end).older = block;
  ++n_idle_;
}

void PrefixIndex::set_busy(BlockId block) {
  check(idle(block), "the block is not idle");
  Node& n = node(block);
  node(n.older).newer = n.newer;
  node(n.newer).older = n.older;
  n.older = n.newer = kNoBlock;
  --n_idle_;
}

BlockId PrefixIndex::evict() {
  check(n_idle_ > 0, "nothing to evict");
  BlockId oldest = nodes_.back().newer;
  check(node(oldest).n_children == 0, "the least recently used block has children");
  set_busy(oldest);
  forget(oldest);
  return oldest;
}

void PrefixIndex::forget(BlockId block) {
  Node& n = node(block);
  BlockId* link = &bucket(n.hash);
  while (*link != block) link = &node(*link).next_in_bucket;
  *link = n.next_in_bucket;
  n.indexed = false;
  --n_indexed_;
  if (--n_children(n.parent) > 0 || n.parent >= 0) return;
  int32_t root = -1 - n.parent;  // the last block of a salt: its name goes too
  roots_.erase(root_[static_cast<size_t>(root)].salt);
  root_[static_cast<size_t>(root)].salt = {};
  free_roots_.push_back(root);
}

int32_t& PrefixIndex::n_children(int32_t parent) {
  return parent >= 0 ? node(parent).n_children : root_[static_cast<size_t>(-1 - parent)].n_children;
}

int32_t PrefixIndex::make_root(const std::string& salt) {
  auto [at, made] = roots_.try_emplace(salt, static_cast<int32_t>(root_.size()));
  if (!made) return -1 - at->second;
  if (free_roots_.empty()) {
    root_.emplace_back();
  } else {
    at->second = free_roots_.back();
    free_roots_.pop_back();
  }
  root_[static_cast<size_t>(at->second)].salt = salt;
  return -1 - at->second;
}

void PrefixIndex::check_integrity() const {
  BlockId end = static_cast<BlockId>(nodes_.size()) - 1;
  std::vector<int32_t> place(nodes_.size(), -1), children(nodes_.size(), 0);
  int32_t n_listed = 0, n_found = 0;
  for (BlockId b = node(end).newer; b != end; b = node(b).newer) {
    check(node(node(b).newer).older == b, "the idle list is torn");
    place[static_cast<size_t>(b)] = n_listed++;
    check(n_listed <= end, "the idle list is a ring");
  }
  check(n_listed == n_idle_, "idle blocks are miscounted");
  for (BlockId b = 0; b < end; ++b) {
    const Node& n = node(b);
    check(n.indexed || !idle(b), "a block is idle without being indexed");
    if (!n.indexed) continue;
    ++n_found;
    auto own = std::span(tokens_).subspan(static_cast<size_t>(b) * block_tokens_, block_tokens_);
    check(n.hash == hash_of(n.parent, own), "a node's tokens have changed");
    check(find_below(n.parent, n.hash, own) == b, "a node cannot be found, or there are two");
    if (n.parent < 0) continue;
    ++children[static_cast<size_t>(n.parent)];
    check(contains(n.parent), "a node's parent is gone");
    check(idle(b) || !idle(n.parent), "a node is held and its parent is not");
    check(!idle(n.parent) || place[static_cast<size_t>(n.parent)] > place[static_cast<size_t>(b)],
          "a parent would be evicted before its child");
  }
  check(n_found == n_indexed_, "indexed blocks are miscounted");
  for (BlockId b = 0; b < end; ++b)
    check(!contains(b) || children[static_cast<size_t>(b)] == node(b).n_children,
          "children are miscounted");
}

}  // namespace pf
