// Truth: hand-worked policies. What an operator sets holds from the next step on, and changes no
// word of what exact rules say.
#include <gtest/gtest.h>

#include "engine/harness.h"

namespace pf {
namespace {

EnginePolicy policy_of(const Harness& h) {
  EnginePolicy policy;
  policy.num_draft_tokens = h.options.k;
  policy.drafters = {"ngram", "model"};
  return policy;
}

std::unique_ptr<Request> request(Harness* h) { return h->request(prompt_of(30, 5), 40); }

int64_t drafted(Harness* h) {
  int64_t before = h->step->snapshot().n_drafted;
  auto r = request(h);
  Request asked = *r;
  uint64_t ticket = h->submit(std::move(r));
  h->run();
  EXPECT_EQ((h->replies[{ticket, 0}].tokens), plain_run(h->options.model, asked, 0, 256).tokens);
  return h->step->snapshot().n_drafted - before;
}

TEST(Policy, SpeculationCanBeSwitchedOffAndOn) {
  Harness h({.draft_agreement = 40, .k = 4});
  EXPECT_GT(drafted(&h), 0);
  EnginePolicy policy = policy_of(h);
  policy.speculation = false;
  h.step->set_policy(policy);
  EXPECT_EQ(drafted(&h), 0);
  policy.speculation = true;
  h.step->set_policy(policy);
  EXPECT_GT(drafted(&h), 0);
}

TEST(Policy, OnlyTheDraftersThatAreListedDraft) {
  Harness h({.draft_agreement = 40, .ngram = true, .k = 4});
  EnginePolicy policy = policy_of(h);
  policy.drafters = {"ngram"};
  h.step->set_policy(policy);
  drafted(&h);
  std::vector<int64_t> rounds = h.step->snapshot().rounds_per_drafter;
  EXPECT_GT(rounds[0], 0);
  EXPECT_EQ(rounds[1], 0);
}

TEST(Policy, TheNumberOfDraftTokensFollows) {
  Harness h({.draft_agreement = 64, .k = 4});
  EnginePolicy policy = policy_of(h);
  policy.num_draft_tokens = 2;
  h.step->set_policy(policy);
  drafted(&h);
  EXPECT_EQ(h.step->snapshot().drafted_at.size(), 2u);
}

// A request's own number stays; every other alpha, dynamic ones included, gives way to the pin.
TEST(Policy, APinnedAlphaReplacesAllButARequestsOwn) {
  auto last_alpha = [](Harness* h, bool own, bool dynamic) {
    auto r = request(h);
    r->speculation.rule = SpeculationParams::Rule::kNamed;
    r->speculation.policy.rule = Acceptance::kThreshold;
    r->speculation.has_alpha = own;
    r->speculation.policy.alpha = own ? 0.9f : 1;
    r->speculation.dynamic_alpha = dynamic;
    uint64_t ticket = h->submit(std::move(r));
    h->run();
    return h->replies[{ticket, 0}].speculation.last_alpha;
  };
  Harness h({.draft_agreement = 40, .k = 4});
  EXPECT_FLOAT_EQ(last_alpha(&h, false, false), 1);
  EXPECT_NE(last_alpha(&h, false, true), 0.7f);
  EnginePolicy policy = policy_of(h);
  policy.pinned_alpha = 0.7f;
  h.step->set_policy(policy);
  EXPECT_FLOAT_EQ(last_alpha(&h, false, false), 0.7f);
  EXPECT_FLOAT_EQ(last_alpha(&h, false, true), 0.7f);
  EXPECT_FLOAT_EQ(last_alpha(&h, true, false), 0.9f);
  policy.pinned_alpha.reset();
  policy.alpha = 0.8f;
  h.step->set_policy(policy);
  EXPECT_FLOAT_EQ(last_alpha(&h, false, false), 0.8f);
}

// Under a server whose own rule loses mass, who names nothing gets it and who asks for the exact
// rules gets those.
TEST(Policy, AutoByNameIsExactWhateverTheServersRuleIs) {
  using Rule = SpeculationParams::Rule;
  AcceptPolicy lossy{.rule = Acceptance::kThreshold, .alpha = 0.3f};
  for (Rule rule : {Rule::kServer, Rule::kAuto}) {
    Harness h({.draft_agreement = 20, .k = 4, .policy = lossy});
    auto r = request(&h);
    r->sampling.temperature = 1;
    r->speculation.rule = rule;
    uint64_t ticket = h.submit(std::move(r));
    h.run();
    const SpeculationCounts& s = h.replies[{ticket, 0}].speculation;
    EXPECT_GT(s.drafted, 0);
    EXPECT_EQ(s.loss > 0, rule == Rule::kServer) << s.loss;
  }
}

}  // namespace
}  // namespace pf
