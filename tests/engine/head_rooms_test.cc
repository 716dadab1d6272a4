// Truth: hand-worked numbers of rows.
#include "engine/head_rooms.h"

#include <gtest/gtest.h>

#include "engine/device.h"

namespace pf {
namespace {

EngineOptions eight_sequences() {
  EngineOptions o;
  o.max_num_seqs = 8;
  return o;
}

TEST(HeadRooms, HoldTheRootsAndNodesOfFullDrafts) {
  const Model draft;
  EngineOptions o = eight_sequences();
  EXPECT_EQ(target_head_rows(o), 8 * (1 + 10));  // what adaptive may draft
  EXPECT_EQ(draft_head_rows(o, draft), 8);       // a level of a chain is a row
  o.draft_length = "fixed";
  EXPECT_EQ(target_head_rows(o), 8 * (1 + 5));
  o.num_speculative_tokens = 3;
  EXPECT_EQ(target_head_rows(o), 8 * (1 + 3));
  o.speculation_tree = {3, 2, 1};  // levels of 3, 6 and 6
  EXPECT_EQ(target_head_rows(o), 8 * (1 + 15));
  EXPECT_EQ(draft_head_rows(o, draft), 8 * 6);
  Model heads;
  heads.medusa.resize(2);
  EXPECT_EQ(draft_head_rows(o, heads), 8);
  o.speculation_tree.clear();
  o.speculation_tree_nodes = 24;
  EXPECT_EQ(target_head_rows(o), 8 * (1 + 24));
  EXPECT_EQ(draft_head_rows(o, draft), 8 * 24);
  o.speculation = {"off"};
  EXPECT_EQ(target_head_rows(o), 8);
}

TEST(HeadRooms, HoldWhatLookaheadGuessesAndWhatACascadesModelJudges) {
  EngineOptions o = eight_sequences();
  o.num_speculative_tokens = 3;
  o.speculation = {"lookahead"};
  EXPECT_EQ(target_head_rows(o), 8 * (1 + 16));  // widths of 4, 1, 1, 1
  o.speculation = {"cascade"};
  EXPECT_EQ(target_head_rows(o), 8 * (1 + 3));
  EXPECT_EQ(draft_head_rows(o, Model()), 8 * (1 + 3));
}

TEST(HeadRooms, AreNeverBelowATreeNorAboveAPass) {
  EngineOptions o;
  EXPECT_EQ(target_head_rows(o), kMostHeadRows);  // 64 x 11
  ResidentModel r;
  r.head_rows = 8;
  EXPECT_EQ(cuda_options(o, r).head_chunk_rows, kMaxTreeNodes + 1);
  r.head_rows = 512;
  r.max_rows = 100;
  EXPECT_EQ(cuda_options(o, r).head_chunk_rows, 100);
  r.max_rows = 20;
  EXPECT_EQ(cuda_options(o, r).head_chunk_rows, kMaxTreeNodes + 1);
  EXPECT_EQ(cuda_options(o, r).max_sequences, 64);
}

}  // namespace
}  // namespace pf
