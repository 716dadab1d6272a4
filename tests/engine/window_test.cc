// Truth: losslessness. A draft that sees a window of the text, or speaks another vocabulary,
// changes what is drafted and never what is said; where all it needs is in its window it is always
// right.
#include <gtest/gtest.h>

#include "engine/harness.h"
#include "engine/permuted.h"
#include "support/chi_square.h"

namespace pf {
namespace {

// Runs n requests twice, greedy and coupled, and compares each with the plain loop.
SpeculationCounts expect_plain(Harness* h, int32_t n) {
  std::map<uint64_t, Request> asked;
  for (float temperature : {0.0f, 0.8f})
    for (int32_t i = 0; i < n; ++i) {
      auto r = h->request(prompt_of(5 + 19 * (i % 6), static_cast<uint32_t>(i)), 40 + i % 7);
      r->sampling.temperature = temperature;
      r->has_seed = temperature > 0;
      asked.emplace(r->ticket, *r);
      h->submit(std::move(r));
    }
  h->run();
  SpeculationCounts all;
  for (auto& [ticket, request] : asked) {
    const Reply& reply = h->replies[{ticket, 0}];
    PlainRun plain = plain_run(h->options.model, request, 0, h->options.max_context);
    EXPECT_EQ(reply.tokens, plain.tokens) << "request " << ticket;
    all.drafted += reply.speculation.drafted;
    all.accepted += reply.speculation.accepted;
  }
  return all;
}

HarnessOptions windowed(int64_t max_prefix_len) {
  HarnessOptions o{.model = {.memory = 4}, .draft_agreement = 64, .k = 4};
  o.draft_context = max_prefix_len;  // positions beyond it are refused by the model
  o.window_tokens = max_prefix_len;
  o.n_window_blocks = 400;
  return o;
}

// The model remembers four tokens, as many as the least window keeps when it moves on; so a draft
// that holds them at the right places keeps all.
TEST(Window, DraftsGoOnBehindTheDraftsContext) {
  for (int64_t limit : {32, 80, 100})
    for (int32_t n : {1, 7, 20}) {
      Harness h(windowed(limit));
      SpeculationCounts all = expect_plain(&h, n);
      EXPECT_GT(all.drafted, 20 * n) << limit;
      EXPECT_EQ(all.accepted, all.drafted) << limit;
    }
}

TEST(Window, TreesInAWindow) {
  HarnessOptions o = windowed(48);
  o.tree = {3, 2, 1};
  o.k = 3;
  Harness h(o);
  EXPECT_GT(expect_plain(&h, 9).accepted, 100);
}

TEST(Window, ADraftThatIsWrongHalfTheTime) {
  HarnessOptions o = windowed(32);
  o.draft_agreement = 32;
  Harness h(o);
  SpeculationCounts all = expect_plain(&h, 16);
  EXPECT_GT(all.accepted, 0);
  EXPECT_LT(all.accepted, all.drafted);
}

TEST(Window, TooFewBlocksForAll) {
  HarnessOptions o = windowed(32);
  o.n_window_blocks = 20;
  Harness h(o);
  SpeculationCounts all = expect_plain(&h, 16);
  EXPECT_GT(all.drafted, 0);
  EXPECT_EQ(all.accepted, all.drafted);
}

TEST(Window, AfterForcedPreemption) {
  for (bool in_tables : {true, false}) {
    HarnessOptions o = windowed(100);
    o.draft_in_tables = in_tables;
    o.n_blocks = 90;
    Harness h(o);
    SpeculationCounts all = expect_plain(&h, 12);
    EXPECT_GT(h.step->snapshot().n_preemptions, 0);
    EXPECT_EQ(all.accepted, all.drafted);
  }
}

TEST(Window, InSmallChunks) {
  HarnessOptions o = windowed(40);
  o.max_num_seqs = 6;
  o.max_num_batched_tokens = 9;
  Harness h(o);
  EXPECT_GT(expect_plain(&h, 6).drafted, 0);
  EXPECT_LE(h.draft->max_rows_seen, 9 + 8) << "chunks of the catch-up, and the draft behind them";
}

TEST(Window, SiblingsHaveWindowsOfTheirOwn) {
  Harness h(windowed(32));
  auto r = h.request(prompt_of(42, 5), 25);
  r->n = 4;
  r->has_seed = true;
  r->sampling.temperature = 0.8f;
  Request asked = *r;
  h.submit(std::move(r));
  h.run();
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ((h.replies[{asked.ticket, i}].tokens),
              plain_run(h.options.model, asked, i, 256).tokens);
    EXPECT_EQ((h.replies[{asked.ticket, i}].speculation.accepted),
              (h.replies[{asked.ticket, i}].speculation.drafted));
  }
}

// Draft rows of three requests with the prompt of 60 tokens, one after the other, and of four
// siblings over it that begin together. Alone each feeds the prompt by itself.
TEST(Window, ACommonPromptIsFedOnce) {
  auto rows = [](bool caching, int32_t n_requests, int32_t n_siblings) {
    HarnessOptions o = windowed(100);
    o.draft_in_tables = false;
    o.prefix_caching = caching;
    o.max_num_seqs = 6;
    o.max_num_batched_tokens = 40;  // the prompt's catch-up takes several steps
    Harness h(o);
    for (int32_t i = 0; i < n_requests; ++i) {
      auto r = h.request(prompt_of(60, 5), 30);
      r->n = n_siblings;
      r->has_seed = true;
      r->sampling.temperature = 0.8f;
      Request asked = *r;
      h.submit(std::move(r));
      h.run();
      for (int32_t index = 0; index < n_siblings; ++index) {
        const Reply& reply = h.replies[{asked.ticket, index}];
        EXPECT_EQ(reply.tokens, plain_run(h.options.model, asked, index, 256).tokens);
        EXPECT_EQ(reply.speculation.accepted, reply.speculation.drafted);
      }
    }
    return h.draft->n_rows_run;
  };
  EXPECT_GE(rows(false, 3, 1) - rows(true, 3, 1), 2 * 50);
  EXPECT_GE(rows(false, 1, 4) - rows(true, 1, 4), 60);
}

HarnessOptions ahead(int32_t agreement) {
  HarnessOptions o = windowed(64);
  o.draft_in_tables = false;
  o.draft_agreement = agreement;
  o.overlaps = true;
  return o;
}

TEST(Ahead, ADraftThatIsAlwaysRightIsAlwaysReady) {
  for (int32_t n : {1, 7}) {
    Harness h(ahead(64));
    SpeculationCounts all = expect_plain(&h, n);
    EXPECT_EQ(all.accepted, all.drafted);
    // All rounds but the first ones of texts and those behind a window that moved on.
    EXPECT_GT(h.draft_model->n_ahead_used(), 8 * n);
  }
}

TEST(Ahead, WhatTheTargetDisagreesWithIsTakenBack) {
  for (int32_t agreement : {0, 30, 55})
    for (int32_t n_blocks : {512, 110}) {
      HarnessOptions o = ahead(agreement);
      o.n_blocks = n_blocks;
      Harness h(o);
      SpeculationCounts all = expect_plain(&h, 12);
      EXPECT_GT(all.drafted, 0);
      EXPECT_LT(all.accepted, all.drafted);
      if (agreement > 0) {
        EXPECT_GT(h.draft_model->n_ahead_used(), 0);
      }
      EXPECT_EQ(h.step->snapshot().n_preemptions > 0, n_blocks == 110);
    }
}

// Penalties count what is drafted ahead; rejection draws the same drafts, ready or not.
TEST(Ahead, ItChangesNoProposal) {
  std::vector<std::vector<int32_t>> texts[2];
  int64_t drafted[2], accepted[2];
  for (bool overlaps : {false, true}) {
    HarnessOptions o = ahead(50);
    o.overlaps = overlaps;
    Harness h(o);
    for (int32_t i = 0; i < 10; ++i) {
      auto r = h.request(prompt_of(9 + i, static_cast<uint32_t>(i)), 50);
      r->sampling.temperature = 0.9f;
      r->sampling.frequency_penalty = i % 2 == 0 ? 0.5f : 0.0f;
      r->stop.min_new_tokens = 20;
      r->stop.end_ids = {7};
      h.submit(std::move(r));
    }
    h.run();
    for (auto& [key, reply] : h.replies) texts[overlaps].push_back(reply.tokens);
    drafted[overlaps] = h.step->snapshot().n_drafted;
    accepted[overlaps] = h.step->snapshot().n_accepted;
    EXPECT_EQ(h.draft_model->n_ahead_used() > 0, overlaps);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(drafted[0], drafted[1]);
  EXPECT_EQ(accepted[0], accepted[1]);
}

HarnessOptions translated(int32_t n_missing) {
  HarnessOptions o = windowed(64);
  o.draft_in_tables = false;
  o.vocabulary = permuted(o.model.vocabulary, n_missing);
  return o;
}

TEST(Ahead, WithAVocabularyOfItsOwn) {
  for (int32_t n_missing : {0, 6}) {
    HarnessOptions o = translated(n_missing);
    o.overlaps = true;
    Harness h(o);
    SpeculationCounts all = expect_plain(&h, 9);
    EXPECT_EQ(all.accepted == all.drafted, n_missing == 0);
    EXPECT_GT(h.draft_model->n_ahead_used(), 0);
  }
}

TEST(Vocabulary, TheSameTokensUnderOtherNumbersKeepAll) {
  for (int32_t n : {1, 7, 20}) {
    Harness h(translated(0));
    SpeculationCounts all = expect_plain(&h, n);
    EXPECT_GT(all.drafted, 20 * n);
    EXPECT_EQ(all.accepted, all.drafted);
  }
}

TEST(Vocabulary, TokensThatTheDraftLacks) {
  for (const auto& tree : {std::vector<int32_t>{}, std::vector<int32_t>{3, 2}}) {
    HarnessOptions o = translated(6);
    o.tree = tree;
    Harness h(o);
    SpeculationCounts all = expect_plain(&h, 16);
    EXPECT_GT(all.accepted, 0);
    EXPECT_LT(all.accepted, all.drafted);
  }
}

TEST(Vocabulary, PenaltiesAndBansSpeakOfTheTargetsTokens) {
  Harness h(translated(3));
  std::map<uint64_t, Request> asked;
  for (int32_t i = 0; i < 8; ++i) {
    auto r = h.request(prompt_of(20 + i, static_cast<uint32_t>(i)), 40);
    r->sampling.repetition_penalty = 1.3f;
    r->sampling.frequency_penalty = 0.3f;
    r->sampling.logit_bias = {{9, 0.5f}, {4, kBannedBias}};
    r->stop.min_new_tokens = 24;
    r->stop.end_ids = {5, 11};
    asked.emplace(r->ticket, *r);
    h.submit(std::move(r));
  }
  h.run();
  for (auto& [ticket, request] : asked)
    EXPECT_EQ((h.replies[{ticket, 0}].tokens), plain_run(h.options.model, request, 0, 256).tokens);
}

// 500,000 draws of the pure rule behind a draft that lacks two of five tokens: what it cannot say
// appears with its exact probability.
void expect_law(std::vector<int32_t> widths, int32_t n_draft) {
  HashModel model{.vocabulary = 5, .agreement = 64, .spread = 2};
  DraftVocabulary v = permuted(5, 2);
  HashModel draft = model;
  draft.agreement = 20;
  draft.known_as = v.to_target;
  ModelDrafter::Options o;
  o.name = "model";
  o.windows = {32, 0, 8, 4};
  o.vocabulary = v;
  o.max_rows = 64;
  ModelDrafter drafter(std::move(o), std::make_unique<HashBackend>(draft, 8, 4, 64));
  std::vector<int32_t> prompt = {1, 2, 3, 0, 4, 2};
  Request request;
  request.sampling.temperature = 0.9f;
  Sequence s;
  s.request = &request;
  s.tokens = prompt;
  std::vector<double> seen(5, 0), want;
  std::vector<float> logits(5), rows;
  Distribution p;
  model.logits(model.hash(prompt), logits);
  make_distribution(request.sampling, logits, &p);
  for (int32_t t = 0; t < 5; ++t) want.push_back(p.at(t));
  // The rows that a target would have for every node: of the first level, all the same question.
  DraftTree tree;
  AcceptResult result;
  int64_t n_kept = 0;
  for (uint64_t draw = 0; draw < 500'000; ++draw) {
    request.seed = draw;
    s.order = draw + 1;
    ASSERT_GT(drafter.match_length(s), 0);
    DraftTask task{&s, n_draft, 0, {widths}, {}, &request.sampling};
    drafter.propose({&task, 1}, {&tree, 1});
    drafter.forget(s);
    ASSERT_EQ(tree.size(), n_draft);
    rows.assign(static_cast<size_t>(5 * (1 + tree.size())), 0);
    std::copy(logits.begin(), logits.end(), rows.begin());
    AcceptInput in{};
    in.tree = &tree;
    in.logits = {rows.data(), {1 + tree.size(), 5}};
    in.params = &request.sampling;
    in.stop = &request.stop;
    in.key = {request.seed, 0};
    in.position = s.n_tokens();
    in.max_tokens = 2;
    accept(in, &result);
    ++seen[static_cast<size_t>(result.tokens[0])];
    n_kept += result.n_accepted;
    for (int32_t token : tree.tokens) ASSERT_GE(token, 2);
  }
  EXPECT_GT(n_kept, 50'000);
  EXPECT_GT(want[0] + want[1], 0.1) << "the test needs something that the draft cannot say";
  EXPECT_GT(chi_square_p_value(seen, want), 0.001);
}

TEST(Law, ATokenThatTheDraftCannotSayKeepsItsProbability) { expect_law({}, 1); }
TEST(Law, SoItDoesBehindSiblings) { expect_law({3}, 3); }

}  // namespace
}  // namespace pf
