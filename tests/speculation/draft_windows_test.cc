// Truth: hand-worked windows. What a draft is fed, what it need not be fed again, and whose blocks
// are whose.
#include "speculation/draft_windows.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pf {
namespace {

using Ids = std::vector<int32_t>;

const DraftVocabulary kSame;

Sequence sequence(const Request& request, uint64_t order, Ids tokens) {
  Sequence s;
  s.request = &request;
  s.order = order;
  s.tokens = std::move(tokens);
  return s;
}

Ids counting(int32_t n) {
  Ids ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 100);
  return ids;
}

Ids fed(const DraftWindows::Job& job) { return {job.committed.begin(), job.committed.end()}; }

DraftTree chain(const Ids& tokens) {
  DraftTree tree;
  for (int32_t t : tokens) tree.add_one_hot(t, tree.size() - 1);
  return tree;
}

// 32 slots: 8 are kept for drafts, so 24 tokens may stand. A longer text keeps its first 4 and its
// last 12, at positions 0..15.
TEST(DraftWindows, ALongTextIsItsFirstAndItsRecentTokens) {
  Request r;
  DraftWindows windows({32, 0, 8, 4}, &kSame);
  Sequence s = sequence(r, 1, counting(24));
  ASSERT_TRUE(windows.follow(s));
  EXPECT_EQ(fed(windows.job(s, 4)), counting(24));
  EXPECT_EQ(windows.job(s, 4).offset, 0);
  Sequence longer = sequence(r, 2, counting(1000));
  DraftWindows others({32, 0, 8, 4}, &kSame);
  ASSERT_TRUE(others.follow(longer));
  DraftWindows::Job job = others.job(longer, 64);
  Ids want = {100, 101, 102, 103};
  for (int32_t t = 1088; t < 1100; ++t) want.push_back(t);
  EXPECT_EQ(fed(job), want);
  EXPECT_EQ(job.base, 0);
  EXPECT_EQ(job.n_draft, 16) << "what fits into 32 slots behind 16 tokens";
  EXPECT_EQ(job.offset + job.base + static_cast<int64_t>(job.committed.size()), 1000);
}

TEST(DraftWindows, WhatWasFedAndIsKeptIsNotFedAgain) {
  Request r;
  DraftWindows windows({32, 0, 8, 4}, &kSame);
  Sequence s = sequence(r, 1, {1, 2, 3});
  ASSERT_TRUE(windows.follow(s));
  EXPECT_EQ(windows.lag(s), 3);
  windows.note(s, windows.job(s, 3), chain({7, 8, 9}));  // 7 and 8 are fed, 9 is not
  s.tokens.insert(s.tokens.end(), {7, 8, 9, 5});         // all kept, and the target's own
  ASSERT_TRUE(windows.follow(s));
  EXPECT_EQ(fed(windows.job(s, 3)), (Ids{9, 5}));
  EXPECT_EQ(windows.job(s, 3).base, 5);
  windows.note(s, windows.job(s, 3), chain({7, 8, 9}));
  s.tokens.insert(s.tokens.end(), {7, 6});  // one kept, then the target's own
  ASSERT_TRUE(windows.follow(s));
  EXPECT_EQ(fed(windows.job(s, 3)), (Ids{6}));
  windows.note(s, windows.job(s, 3), chain({7, 8, 9}));
  s.tokens.push_back(7);  // nothing more than the first
  ASSERT_TRUE(windows.follow(s));
  EXPECT_EQ(fed(windows.job(s, 3)), (Ids{7})) << "the root is fed whatever stands there";
}

// Of a tree only the leading chain lies as a text would.
TEST(DraftWindows, OfATreeTheLeadingChainCounts) {
  Request r;
  DraftWindows windows({32, 0, 8, 4}, &kSame);
  Sequence s = sequence(r, 1, {1, 2});
  ASSERT_TRUE(windows.follow(s));
  DraftTree tree;
  tree.add_one_hot(5, DraftTree::kRoot);
  tree.add_one_hot(6, DraftTree::kRoot);
  tree.add_one_hot(7, 0);
  windows.note(s, windows.job(s, 3), tree);
  s.tokens.insert(s.tokens.end(), {6, 9});  // 6 lies in the slot of the third token, not the second
  ASSERT_TRUE(windows.follow(s));
  EXPECT_EQ(fed(windows.job(s, 3)), (Ids{6, 9}));
}

// At the 25th token the window moves on: the first four stay where they are and are not fed again.
TEST(DraftWindows, AWindowThatIsFullDropsItsMiddle) {
  Request r;
  DraftWindows windows({32, 0, 8, 4}, &kSame);
  Sequence s = sequence(r, 1, counting(24));
  ASSERT_TRUE(windows.follow(s));
  windows.note(s, windows.job(s, 0), {});
  s.tokens.push_back(124);
  ASSERT_TRUE(windows.follow(s));
  DraftWindows::Job job = windows.job(s, 4);
  EXPECT_EQ(job.base, 4);
  Ids want;
  for (int32_t t = 113; t <= 124; ++t) want.push_back(t);
  EXPECT_EQ(fed(job), want);
  EXPECT_EQ(job.offset, 25 - 16);
}

TEST(DraftWindows, ACatchUpIsFedInParts) {
  Request r;
  DraftWindows windows({64, 0, 16, 4}, &kSame);
  Sequence s = sequence(r, 1, counting(40));
  ASSERT_TRUE(windows.follow(s));
  for (int64_t left : {40, 25, 10}) {
    EXPECT_EQ(windows.lag(s), left);
    if (left > 10) windows.note(s, windows.catchup(s, 15), {});
  }
}

// 8 blocks of 4: one sequence takes all, the next one nothing, a third what the first gives back.
TEST(DraftWindows, BlocksAreSharedOutAndComeBack) {
  Request r;
  DraftWindows windows({32, 40, 8, 4}, &kSame);
  Sequence a = sequence(r, 1, counting(24)), b = sequence(r, 2, counting(24));
  ASSERT_TRUE(windows.follow(a));
  EXPECT_EQ(windows.n_blocks_in_use(), 8);
  for (BlockId id : windows.job(a, 0).blocks) EXPECT_TRUE(id >= 40 && id < 48);
  EXPECT_FALSE(windows.follow(b));
  windows.check_integrity();
  windows.forget(a);
  EXPECT_EQ(windows.n_blocks_in_use(), 0);
  EXPECT_TRUE(windows.follow(b));
  windows.forget(b);
  EXPECT_EQ(windows.n_blocks_in_use(), 0);
  windows.check_integrity();
}

// With 4 of the 8 blocks left the window has 16 slots: it moves on at 13 tokens instead of 25.
TEST(DraftWindows, FewBlocksMakeAShortWindow) {
  Request r;
  DraftWindows windows({32, 0, 8, 4}, &kSame);
  Sequence a = sequence(r, 1, counting(3)), b = sequence(r, 2, counting(24));
  ASSERT_TRUE(windows.follow(a));
  EXPECT_EQ(windows.n_blocks_in_use(), 4) << "the least that a window has";
  ASSERT_TRUE(windows.follow(b));
  DraftWindows::Job job = windows.job(b, 64);
  EXPECT_EQ(job.blocks.size(), 4u);
  EXPECT_EQ(job.committed.size(), 8u);
  EXPECT_EQ(job.committed.back(), 123);
  EXPECT_EQ(job.n_draft, 8);
}

// 3 blocks are left: fewer than the least window, so they stay free for others.
TEST(DraftWindows, WhoCannotHaveAWindowHoldsNoBlocks) {
  Request r;
  DraftWindows windows({32, 0, 8, 4}, &kSame);
  Sequence a = sequence(r, 1, counting(12)), b = sequence(r, 2, counting(24));
  ASSERT_TRUE(windows.follow(a));
  EXPECT_EQ(windows.n_blocks_in_use(), 5);
  EXPECT_FALSE(windows.follow(b));
  EXPECT_EQ(windows.n_blocks_in_use(), 5);
}

TEST(DraftWindows, WhoIsNotSeenForLongGivesItsBlocks) {
  Request r;
  DraftWindows windows({32, 0, 8, 4}, &kSame);
  Sequence a = sequence(r, 1, counting(24)), b = sequence(r, 2, counting(24));
  ASSERT_TRUE(windows.follow(a));
  int calls = 0;
  while (!windows.follow(b)) ASSERT_LT(++calls, 5000);
  windows.check_integrity();
  EXPECT_FALSE(windows.follow(a));
  windows.forget(b);
  ASSERT_TRUE(windows.follow(a));
  EXPECT_EQ(windows.lag(a), 24) << "its K and V are gone";
}

// Feeds all that is due; how many tokens that was.
int64_t catch_up(DraftWindows* windows, const Sequence& s) {
  EXPECT_TRUE(windows->follow(s));
  DraftWindows::Job job = windows->job(s, 0);
  auto n = static_cast<int64_t>(job.committed.size());
  windows->note(s, job, {});
  windows->check_integrity();
  return n;
}

Ids blocks_of(const DraftWindows& windows, const Sequence& s) {
  auto blocks = windows.job(s, 0).blocks;
  return {blocks.begin(), blocks.end()};
}

// 22 tokens are the same: 5 blocks of 4. What stands in the sixth is everybody's own.
TEST(DraftWindows, ACommonBeginningIsFedOnce) {
  Request r;
  DraftWindows windows({64, 100, 32, 4}, &kSame);
  Ids text = counting(40), other = counting(22);
  other.insert(other.end(), {1, 2, 3, 4, 5, 6, 7, 8});
  Sequence a = sequence(r, 1, text), b = sequence(r, 2, other);
  EXPECT_EQ(catch_up(&windows, a), 40);
  ASSERT_TRUE(windows.follow(b));
  EXPECT_EQ(windows.job(b, 0).base, 20);
  EXPECT_EQ(catch_up(&windows, b), 10);
  Ids of_a = blocks_of(windows, a), of_b = blocks_of(windows, b);
  for (size_t i = 0; i < of_b.size(); ++i) {
    EXPECT_EQ(of_a[i] == of_b[i], i < 5) << i;
    EXPECT_TRUE(of_b[i] >= 100 && of_b[i] < 132);
  }
  // Whoever comes later finds the blocks of those that are gone.
  windows.forget(a);
  windows.forget(b);
  EXPECT_EQ(windows.n_blocks_in_use(), 0);
  Sequence c = sequence(r, 3, text);
  EXPECT_EQ(catch_up(&windows, c), 4) << "39 tokens stand in front of the root: 9 blocks";
}

TEST(DraftWindows, AnotherSaltOrNoCachingSharesNothing) {
  Request r, salted;
  salted.cache_salt = "theirs";
  DraftWindows windows({64, 0, 48, 4}, &kSame), apart({64, 0, 48, 4, false}, &kSame);
  Sequence a = sequence(r, 1, counting(40)), b = sequence(salted, 2, counting(40)),
           c = sequence(r, 3, counting(40));
  EXPECT_EQ(catch_up(&windows, a), 40);
  EXPECT_EQ(catch_up(&windows, b), 40);
  EXPECT_EQ(catch_up(&apart, a), 40);
  EXPECT_EQ(catch_up(&apart, c), 40);
}

// Windows onto the same long text share what is the same from their beginning on: all of it at the
// same length; one token later only the first four, which are a block.
TEST(DraftWindows, WindowsThatMovedOnShareWhereTheyAreTheSame) {
  Request r;
  DraftWindows windows({32, 0, 32, 4}, &kSame);
  Sequence a = sequence(r, 1, counting(1000)), twin = sequence(r, 2, counting(1000)),
           later = sequence(r, 3, counting(1001));
  EXPECT_EQ(catch_up(&windows, a), 16);
  EXPECT_EQ(catch_up(&windows, twin), 4) << "15 tokens stand in front of the root: 3 blocks";
  EXPECT_EQ(catch_up(&windows, later), 12);
}

// The first one to move on leaves the other's blocks as they are.
TEST(DraftWindows, WhoMovesOnGoesOnInOtherBlocks) {
  Request r;
  DraftWindows windows({32, 0, 16, 4}, &kSame);
  Sequence a = sequence(r, 1, counting(24)), b = sequence(r, 2, counting(24));
  catch_up(&windows, a);
  EXPECT_EQ(catch_up(&windows, b), 4) << "23 tokens stand in front of the root";
  Ids before = blocks_of(windows, b), of_a = blocks_of(windows, a);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(of_a[i], before[i]);
  a.tokens.push_back(7);
  EXPECT_EQ(catch_up(&windows, a), 12) << "the first four are a block";
  EXPECT_EQ(blocks_of(windows, b), before);
  Ids after = blocks_of(windows, a);
  EXPECT_EQ(after[0], before[0]);
  for (size_t i = 1; i < 4; ++i)
    EXPECT_EQ(std::count(before.begin(), before.end(), after[i]), 0) << "block " << i;
  b.tokens.push_back(7);
  EXPECT_EQ(catch_up(&windows, b), 4) << "the same text at the same length";
}

// The root is fed again while nothing stands behind it: its slot is in no shared block, also where
// it ends one.
TEST(DraftWindows, TheRootsSlotIsNotShared) {
  Request r;
  DraftWindows windows({64, 0, 32, 4}, &kSame);
  Sequence a = sequence(r, 1, counting(24)), b = sequence(r, 2, counting(30));
  EXPECT_EQ(catch_up(&windows, a), 24);
  EXPECT_EQ(catch_up(&windows, a), 1);
  EXPECT_EQ(catch_up(&windows, b), 10);
  a.tokens.push_back(124);
  EXPECT_EQ(catch_up(&windows, a), 1);
  windows.forget(b);
  EXPECT_EQ(catch_up(&windows, b), 2) << "29 stood in front of its root: 7 blocks";
}

// Siblings begin in one step, before anything is computed. The second one is not served meanwhile.
TEST(DraftWindows, ASiblingThatWaitsFindsWhatTheFirstOneHasComputed) {
  Request r;
  DraftWindows windows({64, 0, 32, 4}, &kSame);
  Sequence a = sequence(r, 1, counting(41)), b = sequence(r, 2, counting(41));
  ASSERT_TRUE(windows.follow(a));
  ASSERT_TRUE(windows.follow(b));
  EXPECT_EQ(windows.lag(b), 41);
  int32_t n_held = windows.n_blocks_in_use();
  catch_up(&windows, a);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(windows.follow(b));
  windows.check_integrity();
  EXPECT_EQ(windows.lag(b), 1);
  EXPECT_EQ(windows.n_blocks_in_use(), n_held - 10) << "ten blocks are one's and the other's";
}

// Target tokens 0..3 are the draft's 2, -, 0, 1; token 1 is spelled 0 1.
TEST(DraftWindows, ATokenWithoutAPartnerIsSpelled) {
  DraftVocabulary v{{2, 3, 0}, {2, -1, 0, 1}, {0, 0, 2, 2, 2}, {0, 1}};
  v.fit(4, 5);  // both models' logits are wider
  EXPECT_EQ(v.to_target, (Ids{2, 3, 0, -1}));
  Request r;
  DraftWindows windows({32, 0, 8, 4}, &v);
  Sequence s = sequence(r, 1, {0, 1, 4, 2});  // 4 is padding: nothing
  ASSERT_TRUE(windows.follow(s));
  DraftWindows::Job job = windows.job(s, 2);
  EXPECT_EQ(fed(job), (Ids{2, 0, 1, 0}));
  EXPECT_EQ(job.offset, 0);
  windows.note(s, job, chain({3, 2}));
  s.tokens.insert(s.tokens.end(), {3, 1});
  ASSERT_TRUE(windows.follow(s));
  EXPECT_EQ(fed(windows.job(s, 2)), (Ids{0, 1})) << "the kept 3 was fed as 1";
  EXPECT_EQ(windows.job(s, 2).offset, 6 - 7);
  Sequence strange = sequence(r, 2, {4, 4});
  EXPECT_FALSE(windows.follow(strange)) << "nothing that the draft could read";
}

// Draft tokens 0 and 1 both stand for target token 5, which is fed as 1: 0 is never said.
TEST(DraftVocabulary, OneDraftTokenSaysOneOfTheTarget) {
  DraftVocabulary v{{5, 5, 0}, {2, -1, -1, -1, -1, 1}, {0, 0, 0, 0, 0, 0, 0}, {}};
  v.fit(3, 6);
  EXPECT_EQ(v.to_target, (Ids{-1, 5, 0}));
}

}  // namespace
}  // namespace pf
