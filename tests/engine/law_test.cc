// Truth: the model's own law, worked out token by token with every sampling parameter: p(a) p(b |
// a) p(c | a, b). What requests without a seed say under rejection must follow it, whatever drafts.
#include <gtest/gtest.h>

#include "engine/harness.h"
#include "engine/permuted.h"
#include "support/chi_square.h"

namespace pf {
namespace {

constexpr int32_t kTokens = 5, kEnd = 4;
constexpr int32_t kRequests = 30000;

// What shapes a position's distribution, all at once. The end token is banned for two tokens.
void shape(bool all_parameters, SamplingParams* p, StopParams* stop) {
  p->temperature = 0.9f;
  if (!all_parameters) return;
  p->top_k = 4;
  p->top_p = 0.95f;
  p->min_p = 0.03f;
  p->repetition_penalty = 1.2f;
  p->presence_penalty = 0.2f;
  p->frequency_penalty = 0.3f;
  p->logit_bias = {{2, 0.7f}};
  stop->end_ids = {kEnd};
  stop->min_new_tokens = 2;
}

// P of the three first tokens (a, b, c) at index (a V + b) V + c.
std::vector<double> law_of(const HashModel& model, const Request& r) {
  std::vector<double> law;
  std::vector<float> logits(kTokens);
  Distribution d;
  TokenCounts counts;
  counts.add_prompt(r.prompt);
  std::vector<int32_t> text = r.prompt;
  auto walk = [&](auto& self, int32_t n_before, double p) -> void {
    if (n_before == 3) return law.push_back(p);
    model.logits(model.hash(text), logits);
    RowRules rules{&r.sampling, r.sampling.has_penalties() ? &counts : nullptr, {}};
    if (n_before < r.stop.min_new_tokens) rules.banned = r.stop.end_ids;
    apply_rules(rules, logits);
    make_distribution(r.sampling, logits, &d);
    const Distribution here = d;
    for (int32_t t = 0; t < kTokens; ++t) {
      text.push_back(t);
      counts.add_output(t);
      self(self, n_before + 1, p * here.at(t));
      counts.remove_output(t);
      text.pop_back();
    }
  };
  walk(walk, 0, 1);
  return law;
}

// How many requests share a step's room, and what they ask.
struct Asked {
  std::vector<int32_t> prompt = {1, 2, 3, 1, 2, 3, 1, 2};
  std::vector<int32_t> predicted = {};
  int64_t least_drafted = kRequests;
  int32_t n_blocks = 4096, n_new = 5;
};

Snapshot expect_law_of(HarnessOptions o, const Asked& asked, bool all_parameters) {
  SCOPED_TRACE(all_parameters ? "all parameters" : "temperature alone");
  o.model.vocabulary = kTokens;
  o.model.spread = 2;
  o.n_blocks = asked.n_blocks;
  o.max_num_seqs = 256;
  o.max_num_batched_tokens = 2048;
  Harness h(o);
  auto request = [&] {
    auto r = h.request(asked.prompt, asked.n_new);
    shape(all_parameters, &r->sampling, &r->stop);
    r->speculation.predicted = asked.predicted;
    r->seed = 31 * r->ticket + 7;
    return r;
  };
  const std::vector<double> want = law_of(h.options.model, *request());
  for (int32_t i = 0; i < kRequests; ++i) {
    h.submit(request());
    if (i % 1000 == 999) h.run();
  }
  std::vector<double> seen(want.size(), 0);
  int64_t drafted = 0, two_deep = 0;
  for (auto& [key, reply] : h.replies) {
    const std::vector<int32_t>& t = reply.tokens;
    ++seen[static_cast<size_t>((t[0] * kTokens + t[1]) * kTokens + t[2])];
    drafted += reply.speculation.drafted;
    two_deep += reply.origins[1] == Origin::kDraft && reply.speculation.drafted_at.size() > 1;
  }
  EXPECT_GT(drafted, asked.least_drafted);
  EXPECT_GT(two_deep, 200) << "behind a kept token one that stands two deep is judged";
  EXPECT_EQ(h.replies.size(), static_cast<size_t>(kRequests));
  EXPECT_GT(chi_square_p_value(seen, want), 0.001);
  return h.step->snapshot();
}

// What the two runs saw together.
struct Seen {
  int64_t n_preemptions = 0, n_prefix_hit_tokens = 0;
};

Seen expect_law(const HarnessOptions& o, const Asked& asked = {}) {
  Seen seen;
  for (bool all_parameters : {false, true}) {
    Snapshot s = expect_law_of(o, asked, all_parameters);
    seen.n_preemptions += s.n_preemptions;
    seen.n_prefix_hit_tokens += s.n_prefix_hit_tokens;
  }
  return seen;
}

TEST(Law, RejectionWithASampledDraft) { expect_law({.draft_agreement = 20, .k = 3}); }
TEST(Law, RejectionWithADraftOfItsOwnTemperature) {
  expect_law({.draft_agreement = 40, .k = 3, .draft_temperature = 0.4f});
}
TEST(Law, RejectionWithAGreedyDraft) {
  expect_law({.draft_agreement = 40, .k = 3, .draft_temperature = 0});
}
TEST(Law, RejectionOverSiblings) { expect_law({.draft_agreement = 20, .k = 2, .tree = {3, 2}}); }
TEST(Law, RejectionWithMedusaHeads) { expect_law({.medusa_agreement = 20, .k = 3}); }
TEST(Law, RejectionOverMedusaHeadsSiblings) {
  expect_law({.medusa_agreement = 20, .k = 2, .tree = {3, 2}});
}
TEST(Law, RejectionOverMedusaHeadsTreeThatGrows) {
  expect_law({.medusa_agreement = 20, .k = 3, .tree_nodes = 7});
}
TEST(Law, RejectionOverATreeThatGrows) {
  expect_law({.draft_agreement = 20, .k = 2, .tree_nodes = 6});
}
TEST(Law, RejectionOverATreeThatGrowsFromAGreedyDraft) {
  expect_law({.draft_agreement = 40, .k = 2, .tree_nodes = 6, .draft_temperature = 0});
}
TEST(Law, RejectionOverAHeadsTreeThatGrows) {
  expect_law({.eagle_agreement = 20, .k = 3, .tree_nodes = 7});
}
// Where the first n-gram is not kept a cascade proposes one token alone.
TEST(Law, RejectionWithACascade) {
  expect_law({.draft_agreement = 20, .cascade = true, .cascade_only = true, .k = 3},
             {.least_drafted = kRequests * 4 / 5});
}
TEST(Law, RejectionWithACascadeOfThreeLevels) {
  expect_law(
      {.draft_agreement = 20, .cascade = true, .cascade_only = true, .inner_agreement = 40, .k = 3},
      {.least_drafted = kRequests * 4 / 5});
}
TEST(Law, RejectionWithAnEarlyExit) { expect_law({.exit_agreement = 20, .k = 3}); }
TEST(Law, RejectionWithAnEagleHead) { expect_law({.eagle_agreement = 20, .k = 3}); }
TEST(Law, RejectionOverAnEagleHeadsSiblings) {
  expect_law({.eagle_agreement = 20, .k = 2, .tree = {3, 2}});
}
TEST(Law, RejectionWithSuffixChains) { expect_law({.suffix = true, .k = 3}); }
TEST(Law, RejectionOverSuffixSiblings) { expect_law({.suffix = true, .k = 2, .tree = {3, 2}}); }
TEST(Law, RejectionWithAPredictedText) {
  expect_law({.predicted = true, .k = 3}, {.predicted = {0, 1, 2, 3, 4, 0, 2, 1, 4}});
}
TEST(Law, RejectionWithLookahead) { expect_law({.lookahead = true, .k = 3}); }
TEST(Law, RejectionWithNgrams) { expect_law({.ngram = true, .k = 3}); }

// A draft whose tokens have other numbers, two of five of which it does not have.
TEST(Law, RejectionWithAVocabularyOfItsOwn) {
  for (const auto& tree : {std::vector<int32_t>{}, std::vector<int32_t>{2, 2}})
    expect_law({.draft_agreement = 20,
                .k = tree.empty() ? 3 : 2,
                .tree = tree,
                .draft_in_tables = false,
                .window_tokens = 32,
                .n_window_blocks = 2600,
                .vocabulary = permuted(kTokens, 2)});
}

// The text is longer than what the draft sees of it, which moves on while it drafts.
TEST(Law, RejectionBehindTheDraftsContext) {
  expect_law({.draft_agreement = 20,
              .k = 3,
              .draft_context = 24,
              .window_tokens = 24,
              .n_window_blocks = 2600},
             {.prompt = std::vector<int32_t>(29, 3)});
}

// As many as find room grow from 2 blocks to 6 and more, so that some give way and begin again.
TEST(Law, RejectionThroughPreemptions) {
  Seen seen = expect_law({.draft_agreement = 20, .k = 3}, {.n_blocks = 100, .n_new = 16});
  EXPECT_GT(seen.n_preemptions, kRequests / 30);
}

// The prompt of all but the first is found, in the draft's plane too.
TEST(Law, RejectionBehindPrefixHits) {
  Seen seen = expect_law({.draft_agreement = 20, .k = 2, .tree = {3, 2}},
                         {.prompt = {4, 1, 2, 3, 1, 2, 3, 1, 2, 0, 3, 1, 4}});
  EXPECT_GT(seen.n_prefix_hit_tokens, 12 * (2 * kRequests - 600));
}

}  // namespace
}  // namespace pf
