// Truth: rows counted by hand, and the early exit, whose K and V are the target's own: a draft that
// moves what was kept of its tree proposes what it would have said with all of it computed anew.
#include <gtest/gtest.h>

#include <utility>

#include "batch/plan.h"
#include "engine/harness.h"

namespace pf {
namespace {

// Rows of each of the draft's passes, one for each level, step by step, of one request that is
// answered alone.
struct Watched {
  std::vector<std::vector<int32_t>> passes;  // of the steps that drafted
  std::vector<int32_t> accepted;             // in these steps
  std::vector<int32_t> undrafted;            // steps in front of them that measured plain decoding
  Reply reply;
};

Watched watch(HarnessOptions o, float temperature, int32_t n_new = 60) {
  std::vector<int32_t> passes;
  o.draft_us = [&passes](int32_t rows) { return passes.push_back(rows), 0; };
  Harness h(o);
  auto r = h.request({3, 1, 4, 1, 5, 9, 2, 6}, n_new);
  r->sampling.temperature = temperature;
  r->has_seed = temperature > 0;
  Request asked = *r;
  Reply& reply = h.replies[{h.submit(std::move(r)), 0}];
  Watched w;
  int32_t undrafted = 0;
  for (bool more = true; more;) {
    passes.clear();
    int32_t accepted = reply.speculation.accepted, drafted = reply.speculation.drafted;
    h.run_step();
    more = !h.step->idle();
    if (reply.speculation.drafted == drafted && ++undrafted > 0) continue;
    w.passes.push_back(passes);
    w.accepted.push_back(reply.speculation.accepted - accepted);
    w.undrafted.push_back(std::exchange(undrafted, 0));
  }
  h.run();
  EXPECT_EQ(reply.tokens, plain_run(o.model, asked, 0, o.max_context).tokens);
  w.reply = reply;
  return w;
}

HarnessOptions tables(int32_t agreement) {
  return {.draft_agreement = agreement, .k = 4, .max_context = 512, .draft_context = 512};
}
HarnessOptions window(int32_t agreement) {
  HarnessOptions o = tables(agreement);
  o.draft_in_tables = false;
  o.window_tokens = 512;  // never moves on: that feeds it anew
  o.n_window_blocks = 200;
  return o;
}

// Widths 3, 2, 1 are 3 + 6 + 6 nodes. A draft that is the target has nodes 0, 3 and 9 accepted: 0
// and 3 it was fed, of which 3 moves behind 0; 9 it has only said. So the next round begins with
// two tokens: the one of node 9, and the target's own. A level's pass feeds the root and the nodes
// above: 1 + 3, then 1 + 9.
TEST(KeptPaths, OfAFullTreeTwoTokensAreFed) {
  for (HarnessOptions o : {tables(64), window(64)}) {
    o.tree = {3, 2, 1};
    o.k = 3;
    Watched w = watch(o, 0);
    // The prompt's token is the first of 60, so that 14 rounds of four are full.
    ASSERT_GE(w.passes.size(), 14u);
    EXPECT_EQ(w.passes[0].back(), 10);
    for (size_t i = 1; i < 14; ++i) {
      EXPECT_EQ(w.passes[i], (std::vector<int32_t>{2, 4, 10})) << "round " << i;
      EXPECT_EQ(w.accepted[i], 3);
    }
  }
}

// Of two long branches the first is kept: nodes 0, 2, 4 and 6, of which all but the last were fed.
TEST(KeptPaths, OfALongBranchTwoTokensAreFed) {
  for (HarnessOptions o : {tables(64), window(64)}) {
    o.tree = {2, 1, 1, 1};
    Watched w = watch(o, 0.8f);
    ASSERT_GE(w.passes.size(), 11u);
    for (size_t i = 1; i < 11; ++i)
      EXPECT_EQ(w.passes[i], (std::vector<int32_t>{2, 3, 5, 7})) << "round " << i;
  }
}

// Whatever is kept, the next round feeds the target's own token, and the last one of the path where
// that is of the last level.
TEST(KeptPaths, OfAnyPathAllThatWasFedStays) {
  std::vector<std::vector<int32_t>> shapes = {{3, 2, 1}, {2, 2, 2}, {4, 1, 1, 1}, {1, 3, 1}};
  for (const auto& tree : shapes)
    for (HarnessOptions o : {tables(52), window(52)})
      for (float temperature : {0.0f, 0.8f}) {
        o.tree = tree;
        o.draft_temperature = 1.2f;  // it ranks otherwise than the target: paths branch
        Watched w = watch(o, temperature, 300);
        int32_t n_deep = 0;
        for (size_t i = 1; i < w.passes.size(); ++i) {
          bool full = w.accepted[i - 1] == static_cast<int32_t>(w.passes[i - 1].size());
          EXPECT_EQ(w.passes[i][0] - w.undrafted[i], full ? 2 : 1) << "round " << i;
          n_deep += w.accepted[i - 1] > 1;
        }
        EXPECT_GT(n_deep, 5);
      }
}

// A tree that was pruned after it had grown lies among nodes that were fed and not proposed.
TEST(KeptPaths, OfATreeThatGrowsOneOrTwoTokensAreFed) {
  for (HarnessOptions o : {tables(50), window(50)})
    for (float temperature : {0.0f, 0.8f}) {
      o.tree_nodes = 12;
      Watched w = watch(o, temperature, 300);
      int32_t n_deep = 0;
      for (size_t i = 1; i < w.passes.size(); ++i) {
        EXPECT_LE(w.passes[i][0] - w.undrafted[i], 2) << "round " << i;
        n_deep += w.accepted[i - 1] > 1;
      }
      EXPECT_GT(n_deep, 5);
    }
}

TEST(KeptPaths, WhatIsKeptChangesNoProposal) {
  std::vector<std::vector<int32_t>> shapes = {{3, 2, 1}, {2, 2, 2}, {1, 3, 1, 2}, {}};
  for (const auto& tree : shapes)
    for (HarnessOptions o : {tables(44), window(44)})
      for (float temperature : {0.0f, 0.8f}) {
        o.tree = tree;
        o.tree_nodes = tree.empty() ? 12 : 0;
        SpeculationCounts kept = watch(o, temperature, 120).reply.speculation;
        o = {.exit_agreement = 44, .k = 4, .tree = o.tree, .tree_nodes = o.tree_nodes};
        SpeculationCounts anew = watch(o, temperature, 120).reply.speculation;
        EXPECT_EQ(kept.rounds, anew.rounds);
        EXPECT_EQ(kept.drafted, anew.drafted);
        EXPECT_EQ(kept.accepted, anew.accepted);
        EXPECT_EQ(kept.accepted_at, anew.accepted_at);
      }
}

// Of chains nothing moves: what was kept lies where it shall.
TEST(KeptPaths, AChainMovesNothing) {
  for (HarnessOptions o : {tables(40), window(40)}) {
    Harness h(o);
    h.submit(h.request(prompt_of(20, 1), 60));
    h.run();
    EXPECT_EQ(h.draft->n_slots_moved, 0);
    EXPECT_EQ(h.target->n_slots_moved, 0);
  }
}

// Three models that are all the target, on a text that repeats itself, so that n-grams are right
// too. All that was proposed is kept: n-grams, the inner model's own token, the outer one's, the
// target's. The inner one was fed the n-grams, so three tokens are new to it; the outer one lacks
// two.
TEST(KeptPaths, ACascadeKeepsThemInBothPlanes) {
  Harness h({.model = {.vocabulary = 4, .memory = 2},
             .draft_agreement = 64,
             .cascade = true,
             .cascade_only = true,
             .inner_agreement = 64,
             .k = 8});
  Reply& reply = h.replies[{h.submit(h.request({3, 1, 2, 1, 3, 2, 1}, 120)), 0}];
  int32_t accepted = 0, n_long = 0;
  while (!h.step->idle() || h.inbox.size() > 0) {
    const int32_t before = accepted, drafted = reply.speculation.drafted;
    h.run_step();
    accepted = reply.speculation.accepted;
    if (reply.speculation.drafted == drafted || before == 0 || reply.tokens.size() >= 110) continue;
    EXPECT_EQ(h.inside->last_batch().segments[0].n_plain, 3);
    EXPECT_EQ(h.draft->last_batch().segments[0].n_plain, 2);
    n_long += accepted - before > 4;
  }
  EXPECT_GT(n_long, 5);
  EXPECT_EQ(reply.speculation.accepted, reply.speculation.drafted);
}

// Completions of one prompt share the draft's K and V of it as they do the target's, and where
// blocks run out some lose both and compute them again. A draft that is the target is right on
// every level of every tree, as long as nothing that it reads lies in a wrong place.
TEST(KeptPaths, AmongSiblingsAndAfterPreemptionEveryLevelIsKept) {
  std::vector<std::vector<int32_t>> shapes = {{3, 2, 1}, {2, 1, 1, 1}, {}};
  for (const auto& tree : shapes)
    for (HarnessOptions o : {tables(64), window(64)})
      for (float temperature : {0.0f, 0.8f}) {
        o.tree = tree;
        SCOPED_TRACE(std::to_string(tree.size()) + " levels, temperature " +
                     std::to_string(temperature) + (o.window_tokens > 0 ? ", window" : ""));
        o.n_blocks = 70;
        if (!o.draft_in_tables) o.n_window_blocks = 24 * 24;  // all windows hold their whole texts
        Harness h(o);
        std::map<uint64_t, Request> asked;
        for (int32_t i = 0; i < 8; ++i) {
          auto r = h.request(prompt_of(9 + 7 * i, static_cast<uint32_t>(i)), 40);
          r->n = 3;
          r->sampling.temperature = temperature;
          r->has_seed = temperature > 0;
          asked.emplace(r->ticket, *r);
          h.submit(std::move(r));
        }
        h.run();
        EXPECT_GT(h.step->snapshot().n_preemptions, 0);
        EXPECT_GT(h.target->n_blocks_copied, 0);  // shared, and then their own
        for (auto& [ticket, request] : asked)
          for (int32_t index = 0; index < 3; ++index) {
            const Reply& reply = h.replies[{ticket, index}];
            EXPECT_EQ(reply.tokens, plain_run(o.model, request, index, o.max_context).tokens);
            EXPECT_GT(reply.speculation.drafted, 0);
            EXPECT_EQ(reply.n_short_rounds, 0);
          }
      }
}

// Three models, one over another. After a preemption the middle one catches up, so that the first
// is not asked: of what it had in blocks that are gone it says nothing.
TEST(KeptPaths, ACascadeOfThreeModelsSaysNothingOfAPlaneThatItDidNotAsk) {
  auto over = [](std::unique_ptr<Drafter> cheap, int32_t plane) {
    auto model = std::make_unique<HashBackend>(HashModel{}, 64, 4, 256);
    Backend* judge = model.get();
    return std::make_unique<CascadeDrafter>(CascadeDrafter::Options{"cascade", plane, 256, 512},
                                            std::move(cheap), judge, std::move(model));
  };
  auto outer = over(over(over(std::make_unique<NgramDrafter>(1), 3), 2), 1);
  auto& middle = dynamic_cast<CascadeDrafter&>(*outer->inner());
  Request request;
  request.prompt = {3, 1, 2, 1, 3, 2, 1, 3, 1, 2, 1, 3};
  Sequence s;
  s.request = &request;
  s.tokens = request.prompt;
  s.table.filled = {0, 0, 0, 0};
  for (BlockId b = 0; b < 64; ++b) s.table.blocks.push_back(b);
  DraftTask task;
  task.sequence = &s;
  task.n_draft = 6;
  task.params = &request.sampling;
  DraftTree tree;
  outer->propose({&task, 1}, {&tree, 1});
  ASSERT_GT(tree.size(), 0);
  JudgedDraft judged{&s, &tree, {}, s.n_tokens()};
  outer->settle({&judged, 1});
  EXPECT_EQ(outer->filled_inside(s), 12);  // all were asked and fed the whole text
  EXPECT_EQ(middle.filled_inside(s), 12);

  while (s.n_tokens() <= kInlineCatchupTokens) s.tokens.push_back(1);
  outer->propose({&task, 1}, {&tree, 1});
  judged = {&s, &tree, {}, s.n_tokens()};
  outer->settle({&judged, 1});
  EXPECT_EQ(outer->filled_inside(s), kInlineCatchupTokens + 1);  // caught up
  EXPECT_EQ(middle.filled_inside(s), 0);
}

}  // namespace
}  // namespace pf
