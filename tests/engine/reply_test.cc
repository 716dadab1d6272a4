// Truth: what a plain run and hand counts say about log-probabilities, origins and statistics, and
// the order of events.
#include <gtest/gtest.h>

#include "engine/harness.h"

namespace pf {
namespace {

TEST(Reply, LogprobsEqualThoseOfAPlainRun) {
  for (int32_t k : {0, 4}) {
    Harness h({.draft_agreement = 45, .k = k});
    auto r = h.request(prompt_of(20, 1), 30);
    r->output.logprobs = true;
    r->output.n_top_logprobs = 3;
    Request asked = *r;
    uint64_t t = h.submit(std::move(r));
    h.run();
    PlainRun plain = plain_run(h.options.model, asked, 0, 256);
    const Reply& reply = h.replies[{t, 0}];
    ASSERT_EQ(reply.logprobs.size(), plain.logprobs.size());
    for (size_t i = 0; i < plain.logprobs.size(); ++i) {
      EXPECT_EQ(reply.logprobs[i].logprob, plain.logprobs[i]);
      EXPECT_EQ(reply.logprobs[i].top.size(), 3u);
      EXPECT_EQ(reply.logprobs[i].top[0].token, reply.tokens[i]) << "greedy";
    }
  }
}

// Takes in hidden states, drafts nothing, and looks at what is told by then.
class Watcher final : public Drafter {
 public:
  Watcher(BoundedQueue<Event>* outbox, std::string* said) : outbox_(outbox), said_(said) {}
  const std::string& name() const override { return name_; }
  int32_t match_length(const Sequence&) override { return 0; }
  void propose(std::span<const DraftTask>, std::span<DraftTree>) override {}
  bool absorbs() const override { return true; }
  void absorb(std::span<AbsorbTask> tasks) override {
    while (auto e = outbox_->try_pop())
      *said_ += e->finish == FinishReason::kNone ? std::string(e->tokens.size(), 't') : "END";
    *said_ += static_cast<char>('0' + tasks.size());
  }
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence&) override { *said_ += 'f'; }

 private:
  std::string name_ = "watcher";
  BoundedQueue<Event>* outbox_;
  std::string* said_;
};

// A token does not wait for heads to take in what was computed; an end does, so that what is found
// of the text later is whole. Two requests: of one token, and of three.
TEST(Reply, TokensAreToldBeforeHeadsTakeInHiddenStates) {
  const HashModel model;
  Clock clock{1'000'000};
  BoundedQueue<std::unique_ptr<Request>> inbox(4);
  BoundedQueue<Event> outbox(64);
  StepParts parts;
  parts.kv = {64, 4, 1, true};
  parts.scheduler = {4, 64};
  parts.target = std::make_unique<HashBackend>(model, 64, 4, 256);
  std::string said;
  parts.drafters.add(std::make_unique<Watcher>(&outbox, &said));
  parts.max_context = 256;
  parts.length.cost_ratios = {0.1f};
  Step step(std::move(parts), clock, &inbox, &outbox);
  for (int32_t n_new : {1, 3}) {
    auto r = std::make_unique<Request>();
    r->ticket = static_cast<uint64_t>(n_new);
    r->prompt = prompt_of(5, n_new);
    r->stop.max_new_tokens = n_new;
    ASSERT_TRUE(inbox.try_push(std::move(r)));
  }
  do {
    step.run();
    clock.advance_us(1000);
  } while (!step.idle());
  // The prompts: the second one's token, both taken in, the first ends; and so on.
  EXPECT_EQ(said, "t2fENDt11f");
}

TEST(Reply, PromptLogprobsCoverEveryPromptTokenButTheFirst) {
  Harness h({.draft_agreement = 45, .k = 4, .max_num_batched_tokens = 70});
  std::vector<int32_t> prompt = prompt_of(200, 1);
  for (int32_t round = 0; round < 2; ++round) {  // the second time the prefix is cached
    auto r = h.request(prompt, 5);
    r->output.prompt_logprobs = true;
    r->output.n_top_logprobs = 2;
    r->n = 2;
    uint64_t t = h.submit(std::move(r));
    h.run();
    const Reply& reply = h.replies[{t, 0}];
    ASSERT_EQ(reply.prompt_logprobs.size(), 199u);
    std::vector<float> logits(32);
    for (size_t i = 1; i < prompt.size(); ++i) {
      h.options.model.logits(h.options.model.hash(std::span(prompt).first(i)), logits);
      TokenLogprob want = logprobs_of(logits, prompt[i], 2);
      ASSERT_EQ(reply.prompt_logprobs[i - 1].logprob, want.logprob) << i;
      ASSERT_EQ(reply.prompt_logprobs[i - 1].top[1].token, want.top[1].token);
    }
    EXPECT_EQ(reply.n_cached_tokens, 0);
  }
}

// 200 tokens in chunks of 64; the second time 192 of them are found.
TEST(Reply, APromptIsCountedAsItIsComputed) {
  Harness h({.max_num_batched_tokens = 64});
  std::vector<int64_t> counted;
  for (int32_t round = 0; round < 2; ++round) {
    h.submit(h.request(prompt_of(200, 1), 2));
    for (int32_t i = 0; i < 5; ++i) {
      h.run_step();
      counted.push_back(h.step->snapshot().n_prompt_tokens);
    }
  }
  EXPECT_EQ(counted, (std::vector<int64_t>{64, 128, 192, 200, 200, 400, 400, 400, 400, 400}));
}

TEST(Reply, StatisticsAddUp) {
  Harness h({.draft_agreement = 45, .k = 4});
  uint64_t t = h.submit(h.request(prompt_of(20, 1), 60));
  h.run();
  const Reply& r = h.replies[{t, 0}];
  const SpeculationCounts& c = r.speculation;
  ASSERT_EQ(r.origins.size(), 60u);
  std::map<Origin, int32_t> by_origin;
  for (Origin o : r.origins) ++by_origin[o];
  EXPECT_EQ(by_origin[Origin::kDraft], c.accepted);
  // The first token is the prompt's; every round ends in one token of the target's own, but the
  // last one may be cut at the length.
  EXPECT_GE(1 + c.rounds + c.accepted, 60);
  EXPECT_LE(1 + c.rounds + c.accepted, 61);
  int32_t drafted = 0, accepted = 0;
  for (size_t d = 0; d < c.drafted_at.size(); ++d) {
    drafted += c.drafted_at[d];
    accepted += c.accepted_at[d];
    EXPECT_LE(c.accepted_at[d], c.drafted_at[d]);
  }
  EXPECT_EQ(drafted, c.drafted);
  EXPECT_EQ(accepted, c.accepted);
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, drafted);
  EXPECT_EQ(c.loss, 0);
}

TEST(Reply, ADraftThatAgreesNeedsOneRoundForKPlusOneTokens) {
  Harness h({.draft_agreement = 64, .k = 4});
  uint64_t t = h.submit(h.request(prompt_of(20, 1), 51));
  h.run();
  // One token comes with the prompt; one more round without a draft while the draft model reads
  // the prompt (20 tokens are few enough to be fed by the proposal itself: no such round); then
  // 50 tokens at 5 a round.
  EXPECT_EQ((h.replies[{t, 0}].speculation.rounds), 10);
}

TEST(Reply, RequestsOverrideTheServersSpeculation) {
  Harness h({.draft_agreement = 64, .ngram = true, .k = 4});
  auto off = h.request(prompt_of(20, 1), 30);
  off->speculation.mode = SpeculationParams::Mode::kOff;
  auto fixed = h.request(prompt_of(20, 1), 31);
  fixed->speculation.mode = SpeculationParams::Mode::kFixed;
  fixed->speculation.n_draft_tokens = 9;
  fixed->speculation.drafters = {"model"};
  auto capped = h.request(prompt_of(20, 1), 31);
  capped->speculation.mode = SpeculationParams::Mode::kAuto;
  capped->speculation.n_draft_tokens = 2;
  capped->speculation.drafters = {"model"};
  uint64_t a = h.submit(std::move(off)), b = h.submit(std::move(fixed)),
           c = h.submit(std::move(capped));
  h.run();
  EXPECT_EQ((h.replies[{a, 0}].speculation.drafted), 0);
  EXPECT_EQ((h.replies[{a, 0}].speculation.rounds), 29);
  EXPECT_EQ((h.replies[{b, 0}].speculation.rounds), 3);   // 30 tokens at 10 a round
  EXPECT_EQ((h.replies[{c, 0}].speculation.rounds), 10);  // at 3 a round
  EXPECT_EQ((h.replies[{b, 0}].speculation.rounds_per_drafter), (std::vector<int32_t>{0, 3}));
}

TEST(Reply, AFullOutboxNeitherBlocksNorLosesAnything) {
  Harness h({.draft_agreement = 45, .k = 4});
  BoundedQueue<Event> tiny(1);
  StepParts parts;
  parts.kv = {256, 4, 1, true};
  parts.target = std::make_unique<HashBackend>(h.options.model, 256, 4, 256);
  parts.max_context = 256;
  Step step(std::move(parts), h.clock, &h.inbox, &tiny);
  std::map<uint64_t, Request> asked;
  for (int32_t i = 0; i < 5; ++i) {
    auto r = h.request(prompt_of(20, static_cast<uint32_t>(i)), 40);
    asked.emplace(r->ticket, *r);
    h.submit(std::move(r));
  }
  while (step.run()) {
  }
  EXPECT_FALSE(step.idle()) << "events still wait";
  std::map<uint64_t, std::vector<int32_t>> got;
  std::map<uint64_t, int32_t> n_events;
  std::map<uint64_t, size_t> n_rounds;
  auto collect = [&] {
    while (auto e = tiny.try_pop()) {
      auto& to = got[e->ticket];
      for (const VerifiedRound& round :
           e->rounds)  // each gave one token, the prompt another before them
        EXPECT_EQ(to.size() + static_cast<size_t>(round.first_token), ++n_rounds[e->ticket]);
      to.insert(to.end(), e->tokens.begin(), e->tokens.end());
      ++n_events[e->ticket];
    }
  };
  for (int32_t i = 0; i < 100 && !step.idle(); ++i) {
    collect();
    step.run();
  }
  collect();
  for (auto& [ticket, r] : asked) {
    EXPECT_EQ(got[ticket], plain_run(h.options.model, r, 0, 256).tokens);
    EXPECT_LE(n_events[ticket], 2) << "events of one completion grow together";
    EXPECT_EQ(n_rounds[ticket], 39u);
  }
}

}  // namespace
}  // namespace pf
