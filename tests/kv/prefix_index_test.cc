// Truth: hand-worked trees, and the number of nodes that a lookup compares.
#include "kv/prefix_index.h"

#include <gtest/gtest.h>

#include <array>

namespace pf {
namespace {

using Block = std::array<int32_t, 2>;  // P = 2

TEST(PrefixIndex, ANodeIsItsParentAndItsTokens) {
  PrefixIndex index(8, 2);
  index.insert("", kNoBlock, Block{1, 2}, 0);
  index.insert("", 0, Block{3, 4}, 1);
  EXPECT_EQ(index.find("", kNoBlock, Block{1, 2}), 0);
  EXPECT_EQ(index.find("", 0, Block{3, 4}), 1);
  EXPECT_EQ(index.find("", kNoBlock, Block{3, 4}), kNoBlock) << "the same tokens elsewhere";
  EXPECT_EQ(index.find("", 0, Block{4, 3}), kNoBlock);
  EXPECT_EQ(index.find("", 1, Block{1, 2}), kNoBlock);
  index.check_integrity();
}

TEST(PrefixIndex, SaltsShareNothing) {
  PrefixIndex index(8, 2);
  index.insert("a", kNoBlock, Block{1, 2}, 0);
  EXPECT_EQ(index.find("b", kNoBlock, Block{1, 2}), kNoBlock);
  EXPECT_EQ(index.find("", kNoBlock, Block{1, 2}), kNoBlock);
  index.insert("b", kNoBlock, Block{1, 2}, 1);
  EXPECT_EQ(index.find("a", kNoBlock, Block{1, 2}), 0);
  EXPECT_EQ(index.find("b", kNoBlock, Block{1, 2}), 1);
  index.check_integrity();
}

TEST(PrefixIndex, EvictsTheLeastRecentlyUsedFirst) {
  PrefixIndex index(8, 2);
  index.insert("", kNoBlock, Block{1, 1}, 0);
  index.insert("", kNoBlock, Block{2, 2}, 1);
  index.insert("", kNoBlock, Block{3, 3}, 2);
  for (BlockId b : {0, 1, 2}) index.set_idle(b);
  index.set_busy(0);  // used again
  index.set_idle(0);
  EXPECT_EQ(index.n_idle(), 3);
  EXPECT_EQ(index.evict(), 1);
  EXPECT_EQ(index.evict(), 2);
  EXPECT_EQ(index.evict(), 0);
  EXPECT_EQ(index.n_idle(), 0);
  EXPECT_EQ(index.n_indexed(), 0);
  EXPECT_EQ(index.find("", kNoBlock, Block{1, 1}), kNoBlock);
}

TEST(PrefixIndex, ASaltWithoutBlocksLeavesNoTrace) {
  PrefixIndex index(2, 2);
  for (int i = 0; i < 1000; ++i) {
    index.insert("salt " + std::to_string(i), kNoBlock, Block{1, 2}, 0);
    EXPECT_EQ(index.n_salts(), 1);
    index.set_idle(0);
    EXPECT_EQ(index.evict(), 0);
    EXPECT_EQ(index.n_salts(), 0);
  }
  index.check_integrity();
}

// A full index of n blocks in one path: looking the path up compares each node about once. Buckets
// hold one node on average, so the expected number of extra comparisons is n / 2 x n / buckets <=
// n.
TEST(PrefixIndex, LookupGrowsAsThePrompt) {
  for (int32_t n : {1 << 8, 1 << 11, 1 << 14}) {
    PrefixIndex index(n, 2);
    BlockId above = kNoBlock;
    for (BlockId b = 0; b < n; ++b) {
      index.insert("", above, Block{b, b}, b);
      above = b;
    }
    int64_t before = index.n_comparisons();
    above = kNoBlock;
    for (BlockId b = 0; b < n; ++b) ASSERT_EQ(above = index.find("", above, Block{b, b}), b);
    EXPECT_LE(index.n_comparisons() - before, 2 * n);
    EXPECT_GE(index.n_comparisons() - before, n);
  }
}

// Eviction removes from one bucket: it never looks at nodes that find would not look at, and never
// walks the list. Counted through find: none is made.
TEST(PrefixIndex, EvictionComparesNothing) {
  constexpr int32_t kN = 1 << 12;
  PrefixIndex index(kN, 2);
  for (BlockId b = 0; b < kN; ++b) index.insert("", kNoBlock, Block{b, b}, b);
  for (BlockId b = 0; b < kN; ++b) index.set_idle(b);
  int64_t before = index.n_comparisons();
  for (BlockId b = 0; b < kN; ++b) ASSERT_EQ(index.evict(), b);
  EXPECT_EQ(index.n_comparisons(), before);
}

TEST(PrefixIndexDeathTest, DiesOfMisuse) {
  PrefixIndex index(4, 2);
  index.insert("", kNoBlock, Block{1, 2}, 0);
  EXPECT_DEATH(index.insert("", kNoBlock, Block{3, 4}, 0), "indexed once");
  EXPECT_DEATH(index.insert("", 2, Block{3, 4}, 1), "below one that its table holds");
  EXPECT_DEATH(index.set_busy(0), "not idle");
  EXPECT_DEATH(index.evict(), "nothing to evict");
  EXPECT_DEATH(index.find("", kNoBlock, std::array{1}), "whole blocks");
}

}  // namespace
}  // namespace pf
