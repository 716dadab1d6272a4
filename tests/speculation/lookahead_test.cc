// Truth: hand-worked trees and pools, and a target whose next token is a function of the last one:
// there the guesses must come true.
#include <gtest/gtest.h>

#include <bit>

#include "speculation/lookahead_drafter.h"

namespace pf {
namespace {

struct Text {
  Request request;
  Sequence s;
  explicit Text(std::vector<int32_t> tokens) {
    request.prompt = tokens;
    s.request = &request;
    s.tokens = std::move(tokens);
  }
};

DraftTree propose(LookaheadDrafter* drafter, const Text& text, int32_t n_draft,
                  int32_t deepest = kMaxTreeNodes) {
  DraftTask task;
  task.sequence = &text.s;
  task.n_draft = n_draft;
  task.deepest = deepest;
  DraftTree tree;
  drafter->propose({&task, 1}, {&tree, 1});
  return tree;
}

int32_t follower(int32_t token) { return (3 * token + 1) % 101; }

// One greedy round against that target; returns how many tokens it gave.
int64_t round(LookaheadDrafter* drafter, Text* text, int32_t n_draft) {
  DraftTree tree = propose(drafter, *text, n_draft);
  uint64_t watched = drafter->watched(text->s);
  std::vector<int32_t> argmax;
  for (int32_t n = 0; n < tree.size(); ++n)
    argmax.push_back(watched >> n & 1 ? follower(tree.tokens[static_cast<size_t>(n)]) : -1);
  int32_t at = DraftTree::kRoot;
  int64_t n_new = 0;
  for (bool kept = true; kept; ++n_new) {
    int32_t next = follower(text->s.tokens.back());
    text->s.tokens.push_back(next);
    kept = false;
    for (int32_t n = at + 1; n < tree.size() && !kept; ++n)
      if (tree.parents[static_cast<size_t>(n)] == at && tree.tokens[static_cast<size_t>(n)] == next)
        at = n, kept = true;
  }
  drafter->see(text->s, argmax, n_new);
  return n_new;
}

TEST(Lookahead, ItsGuessesComeTrue) {
  LookaheadDrafter drafter;
  Text text({7, 51, 3, 90, 12});
  int64_t first = 0, later = 0;
  for (int i = 0; i < 10; ++i) first += round(&drafter, &text, 16);
  for (int i = 0; i < 20; ++i) later += round(&drafter, &text, 16);
  EXPECT_GE(first, 10);
  EXPECT_GT(later, 20 * 2) << "tokens of 20 rounds";
}

// Text 7, 50, 3: the columns begin as 3 7, 50 3, 7 50, 3 7, ... The first guesses are a chain
// 3 - 50 - 7, each with its second at its side.
TEST(Lookahead, TheWindowIsAChainWithOneBranchPerColumn) {
  LookaheadDrafter drafter;
  Text text({7, 50, 3});
  DraftTree tree = propose(&drafter, text, 6);
  EXPECT_EQ(tree.tokens, (std::vector<int32_t>{3, 7, 50, 3, 7, 50}));
  EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, 0, 0, 2, 2, 4}));
  EXPECT_EQ(tree.depths, (std::vector<int32_t>{1, 2, 2, 3, 3, 4}));
  EXPECT_EQ(drafter.watched(text.s), 0b101010u) << "the second ones";
  for (int32_t n = 0; n < tree.size(); ++n) EXPECT_TRUE(tree.q(n).empty()) << "deterministic";
}

// Behind 3 7 comes 9, behind 50 3 comes 8; the third row was ill, so its column stays. Then, behind
// a 3, the n-gram is 7 9, and the columns are 7 9, 3 8, 7 50, 3 7, of which the first is the n-gram
// itself.
TEST(Lookahead, WhatIsSaidBehindAGuessIsDraftedLater) {
  LookaheadDrafter drafter;
  Text text({7, 50, 3});
  propose(&drafter, text, 6);
  drafter.see(text.s, std::vector<int32_t>{-1, 9, -1, 8, -1, -1}, 1);
  text.s.tokens.push_back(3);
  DraftTree tree = propose(&drafter, text, 8);
  EXPECT_EQ(tree.tokens, (std::vector<int32_t>{7, 9, 3, 8, 7, 50, 3, 7}));
  EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, 0, 0, 2, 2, 4, 4, 6}));
}

TEST(Lookahead, StaysWithinRowsAndDepth) {
  for (int32_t rows = 1; rows <= 64; ++rows)
    for (int32_t deepest : {1, 2, 3, 9, 64}) {
      LookaheadDrafter drafter;
      Text text({7, 51, 3, 90, 12});
      for (int i = 0; i < 12; ++i) round(&drafter, &text, 16);
      DraftTree tree = propose(&drafter, text, rows, deepest);
      EXPECT_LE(tree.size(), rows);
      EXPECT_LE(tree.depth(), deepest);
      for (int32_t n = 0; n < tree.size(); ++n) {
        EXPECT_LT(tree.parents[static_cast<size_t>(n)], n);
        if (n > 0) {
          EXPECT_LE(tree.depths[static_cast<size_t>(n - 1)], tree.depths[static_cast<size_t>(n)]);
        }
      }
      int32_t n_watched = std::popcount(drafter.watched(text.s));
      EXPECT_LE(n_watched, tree.size());
      if (deepest > 1 && rows >= 4) {
        EXPECT_GE(n_watched, 1) << "it always goes on to look ahead";
      }
    }
}

TEST(Lookahead, SiblingsSayDifferentTokens) {
  LookaheadDrafter drafter;
  Text text({7, 7, 7, 7});
  for (int i = 0; i < 20; ++i) {
    DraftTree tree = propose(&drafter, text, 24);
    for (int32_t a = 0; a < tree.size(); ++a)
      for (int32_t b = 0; b < a; ++b)
        EXPECT_FALSE(tree.parents[static_cast<size_t>(a)] == tree.parents[static_cast<size_t>(b)] &&
                     tree.tokens[static_cast<size_t>(a)] == tree.tokens[static_cast<size_t>(b)]);
    round(&drafter, &text, 24);
  }
}

TEST(GramPool, TheLatestFirstAndNoMoreThanItHolds) {
  GramPool pool;
  for (int32_t i = 0; i < 6; ++i) pool.add(1, {i, 0});
  pool.add(1, {3, 0});  // again
  auto tails = pool.find(1);
  ASSERT_EQ(tails.size(), GramPool::kPerKey);
  EXPECT_EQ(tails[0][0], 3);
  EXPECT_EQ(tails[1][0], 5);
  EXPECT_EQ(tails[2][0], 4);
  EXPECT_EQ(tails[3][0], 2);
  for (int32_t key = 2; key < 5000; ++key) pool.add(key, {key, key});
  EXPECT_EQ(pool.n_keys(), GramPool::kKeys);
  EXPECT_TRUE(pool.find(1).empty()) << "it came first and left first";
  EXPECT_EQ(pool.find(4999)[0][0], 4999);
}

}  // namespace
}  // namespace pf
