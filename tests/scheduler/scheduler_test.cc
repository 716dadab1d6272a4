// Truth: hand-worked steps, one rule of the plan at a time. P = 4 unless it says otherwise.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include "scheduler/house.h"

namespace pf {
namespace {

TEST(Scheduler, APromptRunsInChunksAndWantsLogitsAtItsEnd) {
  House house({.max_num_seqs = 2, .max_num_batched_tokens = 6}, 16);
  Sequence& s = house.add({.n_prompt = 14});
  for (auto [n_rows, logits] : {std::pair{6, false}, {6, false}, {2, true}}) {
    const Plan& plan = house.plan(0);
    ASSERT_EQ(plan.sequences.size(), 1u);
    EXPECT_EQ(plan.sequences[0].n_rows, n_rows);
    EXPECT_EQ(plan.sequences[0].wants_logits, logits);
    EXPECT_EQ(plan.n_rows, n_rows);
    house.execute();
  }
  EXPECT_EQ(s.n_generated(), 1);
  EXPECT_TRUE(s.decoding());
  EXPECT_EQ(s.first_scheduled_us, 0);
}

TEST(Scheduler, EveryDecodingSequenceHasItsRowBeforePromptsHaveTheRest) {
  House house({.max_num_seqs = 4, .max_num_batched_tokens = 8}, 64);
  for (int i = 0; i < 3; ++i) house.add({.n_prompt = 2});
  house.step(0);
  house.add({.n_prompt = 20});
  const Plan& plan = house.plan(0);
  ASSERT_EQ(plan.sequences.size(), 4u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(plan.sequences[i].n_rows, 1);
  EXPECT_EQ(plan.sequences[3].n_rows, 5);
  EXPECT_EQ(plan.n_rows, 8);
}

// 8 rows: 2 decode. Of the 6 left a prompt has at least half, the drafts the other 3 of the 8 that
// they want: cut at one height, 1 each, and 1 more for the first.
TEST(Scheduler, DraftsGiveHalfOfTheRestToPromptsAndAreCutAtOneHeight) {
  House house({.max_num_seqs = 4, .max_num_batched_tokens = 8}, 64);
  for (int i = 0; i < 2; ++i) house.add({.n_prompt = 2});
  house.step(0);
  house.wish = {.n_draft = 4};
  house.add({.n_prompt = 20});
  const Plan& plan = house.plan(0);
  ASSERT_EQ(plan.sequences.size(), 3u);
  EXPECT_EQ(plan.sequences[0].n_draft, 2);
  EXPECT_EQ(plan.sequences[1].n_draft, 1);
  EXPECT_EQ(plan.sequences[2].n_rows, 3);
  EXPECT_EQ(plan.n_rows, 8);
}

TEST(Scheduler, RowsThatDraftsDoNotWantGoToPrompts) {
  House house({.max_num_seqs = 4, .max_num_batched_tokens = 20}, 64);
  house.add({.n_prompt = 2});
  house.step(0);
  house.wish = {.n_draft = 2};
  house.add({.n_prompt = 50});
  const Plan& plan = house.plan(0);
  EXPECT_EQ(plan.sequences[0].n_draft, 2);
  EXPECT_EQ(plan.sequences[1].n_rows, 17);  // 20 - 1 - 2
}

TEST(Scheduler, AWishIsCutAtTheWidestTree) {
  House house({.max_num_seqs = 1, .max_num_batched_tokens = 100}, 64);
  house.add({.n_prompt = 2});
  house.step(0);
  house.wish = {.n_draft = 1000};
  EXPECT_EQ(house.plan(0).sequences[0].n_draft, 64);
}

TEST(Scheduler, NobodyDraftsWhilePromptTokensArePending) {
  House house({.max_num_seqs = 1, .max_num_batched_tokens = 8}, 64);
  house.add({.n_prompt = 12});
  house.step(0);
  house.wish = {.n_draft = 4};
  const Plan& plan = house.plan(0);  // the last 4 rows of the prompt
  EXPECT_EQ(plan.sequences[0].n_rows, 4);
  EXPECT_EQ(plan.sequences[0].n_draft, 0);
}

TEST(Scheduler, ALaggingDraftPlaneCatchesUpInChunksBeforeItDrafts) {
  House house({.max_num_seqs = 1, .max_num_batched_tokens = 8}, 64);
  Sequence& s = house.add({.n_prompt = 12});
  house.step(0);
  house.step(0);
  ASSERT_TRUE(s.decoding());
  house.wish = {.n_draft = 4};
  house.drafter_keeps_kv = true;
  // 13 tokens: 7 of them in the first step (8 rows less one that decodes), 7 of 14 in the second.
  for (int i = 0; i < 2; ++i) {
    const Plan& plan = house.plan(0);
    EXPECT_EQ(plan.sequences[0].n_draft, 0);
    EXPECT_EQ(plan.sequences[0].n_draft_catchup, 7);
    house.execute();
  }
  EXPECT_EQ(s.table.filled[1], 14);
  const Plan& plan = house.plan(0);  // 15 tokens: a lag of one
  EXPECT_EQ(plan.sequences[0].n_draft_catchup, 0);
  EXPECT_EQ(plan.sequences[0].n_draft, 4);
}

TEST(Scheduler, ADraftThatNobodyWantsDoesNotCatchUp) {
  House house({.max_num_seqs = 1, .max_num_batched_tokens = 16}, 64);
  house.add({.n_prompt = 12});
  house.step(0);
  house.wish = {.n_draft = 0};
  house.drafter_keeps_kv = true;
  EXPECT_EQ(house.plan(0).sequences[0].n_draft_catchup, 0);
}

// Five sequences lag 4 each: 20 rows of the draft's own pass. 16 are allowed: the last one waits.
TEST(Scheduler, WhatDraftersFeedIsBoundedLikeAStep) {
  House house({.max_num_seqs = 5, .max_num_batched_tokens = 16}, 64);
  for (int i = 0; i < 5; ++i) house.add({.n_prompt = 3});
  house.step(0);
  house.wish = {.n_draft = 1};
  house.drafter_keeps_kv = true;
  const Plan& plan = house.plan(0);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(plan.sequences[i].n_draft, i < 4 ? 1 : 0);
}

TEST(Scheduler, PlannedRowsAndDraftsHaveTheirSlots) {
  House house({.max_num_seqs = 2, .max_num_batched_tokens = 32}, 64);
  Sequence& s = house.add({.n_prompt = 7});
  house.step(0);
  house.wish = {.n_draft = 6};
  house.plan(0);
  EXPECT_GE(static_cast<int64_t>(s.table.blocks.size()) * 4, s.n_tokens() + 6);
}

TEST(Scheduler, NoMoreRunThanAreAllowed) {
  House house({.max_num_seqs = 2, .max_num_batched_tokens = 100}, 64);
  for (int i = 0; i < 3; ++i) house.add({.n_prompt = 2});
  EXPECT_EQ(house.plan(0).sequences.size(), 2u);
  EXPECT_EQ(house.scheduler.waiting().size(), 1u);
}

TEST(Scheduler, PriorityThenArrivalThenOrder) {
  House house({.max_num_seqs = 1, .max_num_batched_tokens = 8, .aging_us = 1000}, 64);
  Sequence& late = house.add({.n_prompt = 2, .arrival_us = 10});
  Sequence& early = house.add({.n_prompt = 2, .arrival_us = 5});
  Sequence& twin = house.add({.n_prompt = 2, .arrival_us = 5});
  Sequence& urgent = house.add({.n_prompt = 2, .priority = -1, .arrival_us = 20});
  Sequence& aged = house.add({.n_prompt = 2, .priority = 3, .arrival_us = -3000});
  std::vector<Sequence*> order(house.scheduler.waiting().begin(), house.scheduler.waiting().end());
  EXPECT_EQ(order, (std::vector<Sequence*>{&urgent, &aged, &early, &twin, &late}));
}

TEST(Scheduler, AdmissionStartsFromTheSharedPrefix) {
  House house({.max_num_seqs = 4, .max_num_batched_tokens = 64}, 64);
  house.add({.n_prompt = 10});
  house.step(0);
  Sequence& s = house.add({.n_prompt = 10});
  const Plan& plan = house.plan(0);
  EXPECT_EQ(s.n_cached_tokens, 8);
  EXPECT_EQ(s.kv_len, 8);
  EXPECT_EQ(plan.sequences[1].n_rows, 2);
}

TEST(Scheduler, AWholePromptInTheCacheStillRunsItsLastToken) {
  House house({.max_num_seqs = 4, .max_num_batched_tokens = 64}, 64);
  house.add({.n_prompt = 8});
  house.step(0);
  Sequence& s = house.add({.n_prompt = 8});
  EXPECT_EQ(house.plan(0).sequences[1].n_rows, 4);  // 8 - 1 = 7: one whole block
  EXPECT_EQ(s.n_cached_tokens, 4);
}

TEST(Scheduler, PromptLogprobsNeedEveryRow) {
  House house({.max_num_seqs = 4, .max_num_batched_tokens = 64}, 64);
  house.add({.n_prompt = 10});
  house.step(0);
  Sequence& s = house.add({.n_prompt = 10, .prompt_logprobs = true});
  EXPECT_EQ(house.plan(0).sequences[1].n_rows, 10);
  EXPECT_EQ(s.n_cached_tokens, 0);
}

TEST(Scheduler, ASequenceWaitsForTheBlocksOfAllItsTokensAndNobodyOvertakesIt) {
  House house({.max_num_seqs = 4, .max_num_batched_tokens = 64}, 8);
  Sequence& first = house.add({.n_prompt = 15});  // 4 blocks of 8
  house.step(0);
  Sequence& large = house.add({.n_prompt = 20, .first_token = 100});  // 5
  house.add({.n_prompt = 1, .first_token = 200});
  EXPECT_EQ(house.plan(0).sequences.size(), 1u);
  house.execute();
  house.finish(&first);
  EXPECT_EQ(house.plan(0).sequences.size(), 2u);
  EXPECT_EQ(large.state, Sequence::State::kRunning);
}

TEST(Scheduler, AdmissionLeavesABlockForEachWhoRuns) {
  for (auto [n_blocks, n_running] : {std::pair{6, 1u}, {7, 2u}}) {
    House house({.max_num_seqs = 4, .max_num_batched_tokens = 64}, n_blocks);
    house.add({.n_prompt = 7});
    house.step(0);
    house.add({.n_prompt = 16, .first_token = 100});  // 4 blocks beside 2
    EXPECT_EQ(house.plan(0).sequences.size(), n_running) << n_blocks;
  }
}

// 5 blocks, two sequences of 2: the first takes the fifth, its fourth comes from the second.
TEST(Scheduler, TheLeastUrgentIsPreemptedAndComesBack) {
  House house({.max_num_seqs = 2, .max_num_batched_tokens = 64}, 5);
  Sequence& a = house.add({.n_prompt = 7});
  Sequence& b = house.add({.n_prompt = 7, .first_token = 100});
  house.step(0);  // 8 tokens each: 2 + 2 blocks
  house.step(0);  // 9 tokens each; a took the fifth block
  ASSERT_EQ(a.table.blocks.size(), 2u);
  house.step(0);
  ASSERT_EQ(a.table.blocks.size(), 3u);
  EXPECT_EQ(b.n_preemptions, 0) << "it waits with its blocks";
  EXPECT_EQ(b.kv_len, 8);
  while (a.table.blocks.size() == 3) house.step(0);
  EXPECT_EQ(house.last_plan().preempted, std::vector<Sequence*>{&b});
  EXPECT_EQ(house.last_plan().sequences.size(), 1u);
  EXPECT_EQ(b.n_preemptions, 1);
  EXPECT_EQ(b.state, Sequence::State::kWaiting);
  EXPECT_EQ(b.kv_len, 0);
  EXPECT_EQ(b.table.filled[0], 0);
  EXPECT_TRUE(b.table.blocks.empty());
  EXPECT_EQ(a.n_preemptions, 0);
  int64_t before = b.n_tokens();
  house.finish(&a);
  house.step(0);
  EXPECT_EQ(b.n_tokens(), before + 1) << "recomputed, it goes on where it stood";
  EXPECT_EQ(b.n_cached_tokens, 0) << "of the first admission";
}

TEST(Scheduler, DraftsShrinkToTheFreeBlocksAndPreemptNobody) {
  House house({.max_num_seqs = 2, .max_num_batched_tokens = 64}, 5);
  house.add({.n_prompt = 5});
  house.add({.n_prompt = 5, .first_token = 100});
  house.step(0);  // 6 tokens each, in 2 + 2 blocks: 2 slots left in each, and one free block
  house.wish = {.n_draft = 7};
  const Plan& plan = house.plan(0);
  EXPECT_TRUE(plan.preempted.empty());
  ASSERT_EQ(plan.sequences.size(), 2u);
  EXPECT_EQ(plan.sequences[0].n_draft, 6);
  EXPECT_EQ(plan.sequences[1].n_draft, 2);
}

// The first one's drafts reserved 4 blocks; all were rejected. The second one needs one of them.
TEST(Scheduler, WhatRejectedDraftsLeftIsTakenBackBeforeAnybodyIsPreempted) {
  House house({.max_num_seqs = 2, .max_num_batched_tokens = 64}, 6);
  Sequence& a = house.add({.n_prompt = 4});
  Sequence& b = house.add({.n_prompt = 6, .first_token = 100});
  house.step(0);  // 5 and 7 tokens: 2 + 2 blocks at the next plan
  house.step(0);
  house.wish = {.n_draft = 10};
  house.n_accepted = 0;
  house.step(0);
  ASSERT_EQ(a.table.blocks.size() + b.table.blocks.size(), 6u);
  house.wish = {};
  while (b.n_tokens() < 12) house.step(0);
  EXPECT_EQ(a.n_preemptions + b.n_preemptions, 0);
}

TEST(Scheduler, AFollowerWaitsForItsLeaderAndStartsWithTheForkedTable) {
  House house({.max_num_seqs = 4, .max_num_batched_tokens = 6}, 16);
  Sequence& leader = house.add({.n_prompt = 10});
  Sequence& follower = house.add_follower(leader);
  Sequence& other = house.add({.n_prompt = 2, .first_token = 100});
  house.step(0);
  EXPECT_EQ(follower.state, Sequence::State::kWaiting);
  house.step(0);  // 4 rows end the leader's prompt, 2 are left: it is passed over
  EXPECT_EQ(other.state, Sequence::State::kRunning);
  house.fork(leader, &follower);
  const Plan& plan = house.plan(0);
  EXPECT_EQ(follower.state, Sequence::State::kRunning);
  EXPECT_EQ(follower.kv_len, 9);
  EXPECT_EQ(plan.n_rows, 3);
  house.execute();
  EXPECT_EQ(follower.n_generated(), 1);
}

// The leader needs the block that its waiting fork holds.
TEST(Scheduler, AForkThatWaitsGivesItsBlocksToThoseWhoRun) {
  House house({.max_num_seqs = 1, .max_num_batched_tokens = 16}, 3);
  Sequence& leader = house.add({.n_prompt = 6});
  Sequence& follower = house.add_follower(leader);
  house.step(0);
  house.fork(leader, &follower);
  ASSERT_EQ(house.kv.n_available(), 0);
  house.step(0);
  house.step(0);  // 9 tokens: a third block
  EXPECT_TRUE(house.last_plan().preempted.empty());
  house.plan(0);
  EXPECT_EQ(house.last_plan().preempted, std::vector<Sequence*>{&follower});
  EXPECT_TRUE(follower.table.blocks.empty());
  EXPECT_EQ(follower.kv_len, 0);
  house.execute();
  house.finish(&leader);
  house.step(0);
  EXPECT_EQ(follower.n_generated(), 1) << "it recomputes what the cache has lost";
}

TEST(Scheduler, AForkThatWaitsDoesNotBlockTheFirstInTheQueue) {
  House house({.max_num_seqs = 1, .max_num_batched_tokens = 32}, 6);
  Sequence& leader = house.add({.n_prompt = 6});
  Sequence& follower = house.add_follower(leader);
  house.step(0);
  house.fork(leader, &follower);
  house.finish(&leader);
  Sequence& urgent =
      house.add({.n_prompt = 24, .priority = -1, .first_token = 100});  // all 6 blocks
  house.plan(0);
  EXPECT_EQ(urgent.state, Sequence::State::kRunning);
  EXPECT_EQ(house.last_plan().preempted, std::vector<Sequence*>{&follower});
}

TEST(Scheduler, RemoveWorksInEveryState) {
  House house({.max_num_seqs = 1, .max_num_batched_tokens = 16}, 8);
  Sequence& runs = house.add({.n_prompt = 6});
  Sequence& waits = house.add({.n_prompt = 6});
  Sequence& follows = house.add_follower(runs);
  house.step(0);
  house.fork(runs, &follows);
  for (Sequence* s : {&runs, &waits, &follows}) house.finish(s);
  EXPECT_TRUE(house.scheduler.idle());
  EXPECT_EQ(house.kv.n_in_use(), 0);
  house.finish(&runs);  // it is no part any more: nothing happens
  house.kv.check_integrity({});
}

}  // namespace
}  // namespace pf
