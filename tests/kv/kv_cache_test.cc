// Truth: hand-worked tables. P = 4; a sequence's tokens are 0, 1, 2, ... unless it says otherwise.
#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pf {
namespace {

using Tokens = std::vector<int32_t>;

Tokens count(int32_t n, int32_t first = 0) {
  Tokens t(static_cast<size_t>(n));
  std::iota(t.begin(), t.end(), first);
  return t;
}

KvCache cache(int32_t n_blocks, int32_t n_planes = 1, bool prefix_caching = true) {
  return KvCache({n_blocks, 4, n_planes, prefix_caching});
}

// A table that has run all of `tokens` in the target.
BlockTable run(KvCache* kv, const Tokens& tokens, const std::string& salt = "") {
  BlockTable t;
  kv->acquire_prefix(&t, tokens, salt, static_cast<int64_t>(tokens.size()) - 1);
  EXPECT_TRUE(kv->reserve(&t, static_cast<int64_t>(tokens.size())));
  kv->commit(&t, kTargetPlane, tokens, static_cast<int64_t>(tokens.size()), salt);
  return t;
}

void check_all(const KvCache& kv, std::initializer_list<const BlockTable*> live) {
  kv.check_integrity(std::vector(live));
}

TEST(KvCache, ReservesBlocksForSlotsAndRefusesWithoutChange) {
  KvCache kv = cache(3);
  BlockTable a, b;
  EXPECT_TRUE(kv.reserve(&a, 5));  // ceil(5 / 4) = 2
  EXPECT_EQ(a.blocks.size(), 2u);
  EXPECT_TRUE(kv.reserve(&a, 8));  // fits
  EXPECT_EQ(a.blocks.size(), 2u);
  EXPECT_FALSE(kv.reserve(&b, 5));  // 2 wanted, 1 left
  EXPECT_TRUE(b.blocks.empty());
  EXPECT_EQ(kv.n_available(), 1);
  kv.release(&a);
  EXPECT_EQ(kv.n_available(), 3);
  EXPECT_EQ(kv.n_in_use(), 0);
}

TEST(KvCache, AFinishedSequenceLeavesItsFullBlocksToTheNext) {
  KvCache kv = cache(8);
  BlockTable a = run(&kv, count(10));  // blocks 0..3, 4..7, and 8, 9 in an open one
  EXPECT_EQ(a.n_indexed, 2);
  std::vector<BlockId> first = a.blocks;
  kv.release(&a);
  EXPECT_EQ(kv.n_cached(), 2);
  EXPECT_EQ(kv.n_available(), 8);
  BlockTable b;
  KvCache::PrefixHit hit = kv.find_prefix(count(12), "", 11);
  EXPECT_EQ(hit.n_tokens, 8);
  EXPECT_EQ(hit.n_cached, 2);
  EXPECT_EQ(kv.acquire_prefix(&b, count(12), "", 11), 8);
  EXPECT_EQ(b.blocks, std::vector(first.begin(), first.begin() + 2));
  EXPECT_EQ(b.filled[kTargetPlane], 8);
  EXPECT_EQ(b.n_indexed, 2);
  EXPECT_EQ(kv.n_cached(), 0);
  EXPECT_EQ(kv.prefix_stats().n_queried_tokens, 10 + 12);
  EXPECT_EQ(kv.prefix_stats().n_hit_tokens, 8);
  check_all(kv, {&b});
}

TEST(KvCache, APrefixHitKeepsItsLimitInWholeBlocks) {
  KvCache kv = cache(8);
  BlockTable a = run(&kv, count(9));
  for (auto [limit, hit] : {std::pair{0, 0}, {3, 0}, {4, 4}, {7, 4}, {8, 8}, {100, 8}}) {
    BlockTable b;
    EXPECT_EQ(kv.acquire_prefix(&b, count(8), "", limit), hit) << limit;
    kv.release(&b);
  }
  check_all(kv, {&a});
}

TEST(KvCache, SaltsNeverShare) {
  KvCache kv = cache(8);
  BlockTable a = run(&kv, count(8), "alice");
  BlockTable b;
  EXPECT_EQ(kv.acquire_prefix(&b, count(8), "bob", 8), 0);
  EXPECT_EQ(kv.acquire_prefix(&b, count(8), "", 8), 0);
  EXPECT_EQ(kv.acquire_prefix(&b, count(8), "alice", 8), 8);
  check_all(kv, {&a, &b});
}

TEST(KvCache, WithoutPrefixCachingNothingIsKept) {
  KvCache kv = cache(4, 1, false);
  BlockTable a = run(&kv, count(8));
  EXPECT_EQ(a.n_indexed, 0);
  BlockTable b;
  EXPECT_EQ(kv.acquire_prefix(&b, count(8), "", 8), 0);
  EXPECT_EQ(kv.find_prefix(count(8), "", 8).n_tokens, 0);
  kv.release(&a);
  EXPECT_EQ(kv.n_cached(), 0);
  EXPECT_EQ(kv.n_available(), 4);
}

// Two sequences run the same prompt side by side: the second changes over to the first one's
// blocks.
TEST(KvCache, TheSameTokensTwiceEndInOneBlock) {
  KvCache kv = cache(8);
  BlockTable a, b;
  for (BlockTable* t : {&a, &b}) {
    EXPECT_EQ(kv.acquire_prefix(t, count(10), "", 9), 0);
    EXPECT_TRUE(kv.reserve(t, 10));
  }
  EXPECT_EQ(kv.n_in_use(), 6);
  kv.commit(&a, kTargetPlane, count(10), 10, "");
  kv.commit(&b, kTargetPlane, count(10), 10, "");
  EXPECT_EQ(b.blocks[0], a.blocks[0]);
  EXPECT_EQ(b.blocks[1], a.blocks[1]);
  EXPECT_NE(b.blocks[2], a.blocks[2]);
  EXPECT_EQ(kv.n_in_use(), 4);
  check_all(kv, {&a, &b});
}

// b's own block has draft KV that a's lacks: b keeps it, and changes over once a's has as much.
TEST(KvCache, NoPlaneIsLostToSharing) {
  KvCache kv = cache(8, 2);
  BlockTable a, b;
  for (BlockTable* t : {&a, &b}) {
    kv.acquire_prefix(t, count(5), "", 4);
    EXPECT_TRUE(kv.reserve(t, 5));
  }
  kv.commit(&b, 1, count(5), 3, "");
  kv.commit(&a, kTargetPlane, count(5), 4, "");
  kv.commit(&b, kTargetPlane, count(5), 4, "");
  EXPECT_NE(b.blocks[0], a.blocks[0]);
  EXPECT_EQ(b.filled[1], 3);
  EXPECT_EQ(b.n_indexed, 0);
  check_all(kv, {&a, &b});
  kv.commit(&a, 1, count(5), 4, "");
  kv.commit(&b, kTargetPlane, count(5), 5, "");
  EXPECT_EQ(b.blocks[0], a.blocks[0]);
  EXPECT_EQ(b.n_indexed, 1);
  EXPECT_EQ(b.filled[1], 4) << "it has gained a token";
  check_all(kv, {&a, &b});
}

TEST(KvCache, DraftPlanesOfSharedBlocksFillOnceForAll) {
  KvCache kv = cache(8, 2);
  BlockTable a = run(&kv, count(9));
  kv.commit(&a, 1, count(9), 6, "");
  BlockTable b;
  EXPECT_EQ(kv.acquire_prefix(&b, count(12), "", 11), 8);
  EXPECT_EQ(b.filled, (std::vector<int64_t>{8, 6}));  // 4 of the first block, 2 of the second
  kv.commit(&a, 1, count(9), 8, "");
  kv.commit(&b, 1, count(12), 7, "");  // late and shorter: lowers nothing
  EXPECT_EQ(b.filled[1], 8);
  EXPECT_EQ(a.filled[1], 8);
  check_all(kv, {&a, &b});
}

TEST(KvCache, AGapInADraftPlaneEndsItsCount) {
  KvCache kv = cache(8, 2);
  BlockTable a = run(&kv, count(9));
  kv.commit(&a, 1, count(9), 2, "");  // block 0: 2 of 4, block 1: none
  BlockTable b;
  kv.acquire_prefix(&b, count(9), "", 8);
  EXPECT_EQ(b.filled[1], 2);
}

TEST(KvCache, EvictsTheLeastRecentlyUsedPrefixDeepestFirst) {
  KvCache kv = cache(4);
  BlockTable a = run(&kv, count(8)), b = run(&kv, count(8, 100));
  kv.release(&a);
  kv.release(&b);
  EXPECT_EQ(kv.n_cached(), 4);
  BlockTable c;
  EXPECT_TRUE(kv.reserve(&c, 4));  // takes a's second block
  EXPECT_EQ(kv.find_prefix(count(8), "", 8).n_tokens, 4);
  EXPECT_EQ(kv.find_prefix(count(8, 100), "", 8).n_tokens, 8);
  EXPECT_TRUE(kv.reserve(&c, 8));  // a's first
  EXPECT_EQ(kv.find_prefix(count(8), "", 8).n_tokens, 0);
  EXPECT_EQ(kv.find_prefix(count(8, 100), "", 8).n_tokens, 8);
  EXPECT_EQ(kv.prefix_stats().n_evicted_blocks, 2);
  check_all(kv, {&c});
}

TEST(KvCache, ABlockInUseIsNeverEvicted) {
  KvCache kv = cache(4);
  BlockTable a = run(&kv, count(8));
  BlockTable b;
  EXPECT_FALSE(kv.reserve(&b, 12));
  EXPECT_TRUE(kv.reserve(&b, 8));
  EXPECT_EQ(kv.find_prefix(count(8), "", 8).n_tokens, 8);
  check_all(kv, {&a, &b});
}

TEST(KvCache, TrimGivesBackWhatRejectedDraftsReserved) {
  KvCache kv = cache(8);
  BlockTable a = run(&kv, count(5));
  EXPECT_TRUE(kv.reserve(&a, 13));
  EXPECT_EQ(a.blocks.size(), 4u);
  kv.trim(&a, 6);
  EXPECT_EQ(a.blocks.size(), 2u);
  EXPECT_EQ(kv.n_in_use(), 2);
  check_all(kv, {&a});
}

TEST(KvCache, AForkSharesFullBlocksAndCopiesTheOpenOne) {
  KvCache kv = cache(8, 2);
  BlockTable a = run(&kv, count(11));
  kv.commit(&a, 1, count(11), 10, "");
  BlockTable b, c;
  KvCache::Fork open = kv.fork(a, 10, &b), whole = kv.fork(a, 8, &c);
  ASSERT_TRUE(open.ok && open.has_copy);
  EXPECT_EQ(open.copy.from, a.blocks[2]);
  EXPECT_EQ(open.copy.to, b.blocks[2]);
  EXPECT_EQ(b.blocks[0], a.blocks[0]);
  EXPECT_EQ(b.filled, (std::vector<int64_t>{10, 10}));
  ASSERT_TRUE(whole.ok);
  EXPECT_FALSE(whole.has_copy);
  EXPECT_EQ(c.blocks, std::vector(a.blocks.begin(), a.blocks.begin() + 2));
  EXPECT_EQ(kv.n_in_use(), 4);
  check_all(kv, {&a, &b, &c});
}

TEST(KvCache, AForkOfNothingIsAnEmptyTable) {
  KvCache kv = cache(2);
  BlockTable a, b;
  EXPECT_TRUE(kv.fork(a, 0, &b).ok);
  EXPECT_TRUE(b.blocks.empty());
  EXPECT_EQ(b.filled, std::vector<int64_t>{0});
}

TEST(KvCache, AForkWithoutABlockForItsCopyChangesNothing) {
  KvCache kv = cache(2);
  BlockTable a = run(&kv, count(6)), b;
  EXPECT_FALSE(kv.fork(a, 5, &b).ok);
  EXPECT_TRUE(b.blocks.empty());
  check_all(kv, {&a});
}

TEST(KvCache, SiblingsThatFillTheirCopiesAlikeShareAgain) {
  KvCache kv = cache(8);
  BlockTable a = run(&kv, count(6)), b;
  ASSERT_TRUE(kv.fork(a, 6, &b).ok);
  for (BlockTable* t : {&a, &b}) kv.commit(t, kTargetPlane, count(8), 8, "");
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(kv.n_in_use(), 2);
  check_all(kv, {&a, &b});
}

TEST(KvCacheDeathTest, DiesOfMisuse) {
  KvCache kv = cache(8);
  BlockTable a = run(&kv, count(6));
  EXPECT_DEATH(kv.trim(&a, 5), "committed tokens were trimmed");
  EXPECT_DEATH(kv.commit(&a, 0, count(9), 9, ""), "beyond the table");
  EXPECT_DEATH(kv.commit(&a, 0, count(6), 7, ""), "do not exist");
  EXPECT_DEATH(kv.acquire_prefix(&a, count(6), "", 5), "an empty table");
  BlockTable b;
  EXPECT_DEATH(kv.fork(a, 7, &b), "not there");
  BlockTable copy = a;
  EXPECT_DEATH(check_all(kv, {&a, &copy}), "miscounted");
}

}  // namespace
}  // namespace pf
