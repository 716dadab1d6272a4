// Truth: hand-worked counts. Where a completion ends, and that everything it held comes back.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>

#include "engine/harness.h"

namespace pf {
namespace {

TEST(Limits, TheContextGivesOneTokenMoreThanThePromptIsShortOfIt) {
  for (int32_t short_of : {0, 1, 2, 3, 5, 9})
    for (int32_t k : {0, 4}) {
      Harness h({.draft_agreement = 64, .k = k, .max_context = 64});
      uint64_t t = h.submit(h.request(prompt_of(64 - short_of, 1), 1000));
      h.run();
      EXPECT_EQ((h.replies[{t, 0}].tokens.size()), static_cast<size_t>(short_of + 1));
      EXPECT_EQ((h.replies[{t, 0}].finish), FinishReason::kContextFull);
    }
}

TEST(Limits, LengthWinsWhenBothFallTogether) {
  Harness h({.draft_agreement = 64, .k = 4, .max_context = 64});
  uint64_t t = h.submit(h.request(prompt_of(60, 1), 5));
  h.run();
  EXPECT_EQ((h.replies[{t, 0}].tokens.size()), 5u);
  EXPECT_EQ((h.replies[{t, 0}].finish), FinishReason::kLength);
}

TEST(Limits, NoNewTokensMeansThePromptIsRun) {
  Harness h({.draft_agreement = 64, .k = 4});
  auto r = h.request(prompt_of(30, 1), 0);
  r->n = 3;
  uint64_t t = h.submit(std::move(r));
  h.run();
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE((h.replies[{t, i}].tokens.empty()));
    EXPECT_EQ((h.replies[{t, i}].finish), FinishReason::kLength);
  }
  EXPECT_GE(h.target->n_rows_run, 30);
}

TEST(Limits, AnEndTokenInsideAnAcceptedRunCutsItThere) {
  Harness plain({});
  auto r = plain.request(prompt_of(20, 3), 60);
  Request asked = *r;
  std::vector<int32_t> text = plain_run(plain.options.model, asked, 0, 256).tokens;
  for (size_t at = 0; at < 12; ++at) {
    Harness h({.draft_agreement = 64, .k = 5});
    auto q = std::make_unique<Request>(asked);
    q->stop.end_ids = {text[at]};
    size_t first =
        static_cast<size_t>(std::find(text.begin(), text.end(), text[at]) - text.begin());
    uint64_t t = h.submit(std::move(q));
    h.run();
    EXPECT_EQ(
        (h.replies[{t, 0}].tokens),
        std::vector<int32_t>(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first) + 1));
    EXPECT_EQ((h.replies[{t, 0}].finish), FinishReason::kEndToken);
  }
}

TEST(Limits, CancelFreesAtTheNextStepInEveryState) {
  for (int32_t after = 0; after < 12; ++after) {
    Harness h({.draft_agreement = 40, .k = 3, .max_num_batched_tokens = 70});
    std::atomic<uint32_t> cancel{0};
    auto r = h.request(prompt_of(200, 1), 50);
    r->n = 2;
    r->cancel = &cancel;
    uint64_t t = h.submit(std::move(r));
    uint64_t other = h.submit(h.request(prompt_of(30, 2), 12));
    for (int32_t i = 0; i < after; ++i) h.run_step();
    cancel = ~0u;
    h.step->cancelled(t);
    h.run_step();
    EXPECT_EQ((h.replies[{t, 0}].finish), FinishReason::kCancelled) << after;
    EXPECT_EQ((h.replies[{t, 1}].finish), FinishReason::kCancelled) << after;
    h.run();
    EXPECT_EQ((h.replies[{other, 0}].tokens.size()), 12u);
  }
}

TEST(Limits, CancelOfOneCompletionLeavesItsSiblings) {
  Harness h({.draft_agreement = 40, .k = 3});
  for (uint32_t gone : {0u, 1u}) {
    for (int32_t after : {0, 3}) {
      std::atomic<uint32_t> cancel{0};
      auto r = h.request(prompt_of(150, 1), 20);
      r->n = 3;
      r->cancel = &cancel;
      uint64_t t = h.submit(std::move(r));
      for (int32_t i = 0; i < after; ++i) h.run_step();
      cancel = 1u << gone;
      h.step->cancelled(t);
      h.run();
      for (int32_t i = 0; i < 3; ++i)
        EXPECT_EQ((h.replies[{t, i}].finish), i == static_cast<int32_t>(gone)
                                                  ? FinishReason::kCancelled
                                                  : FinishReason::kLength);
    }
  }
}

// One place. What waits for it is looked at when somebody says so, not in every step; what runs is.
TEST(Limits, AStepVisitsNobodyWhoWaitsButThoseWhoseCancelWasTold) {
  Harness h({.max_num_seqs = 1});
  constexpr size_t kWaiting = 200;
  std::vector<std::atomic<uint32_t>> cancel(1 + kWaiting);
  std::vector<uint64_t> tickets;
  for (size_t i = 0; i <= kWaiting; ++i) {
    auto r = h.request(prompt_of(10, 1), 100);
    r->cancel = &cancel[i];
    if (i == 7) cancel[i] = 1;  // before it is taken: seen then
    tickets.push_back(h.submit(std::move(r)));
  }
  h.run_step();
  h.run_step();
  EXPECT_EQ((h.replies[{tickets[7], 0}].finish), FinishReason::kCancelled);
  for (size_t i = 0; i <= kWaiting; i += 2) cancel[i] = 1;
  h.run_step();
  EXPECT_EQ((h.replies[{tickets[0], 0}].finish), FinishReason::kCancelled) << "it runs";
  EXPECT_EQ(h.replies.size(), 3u);  // and the one that has its place now
  for (uint64_t t : {tickets[4], tickets[9], tickets[0], uint64_t{12345}}) h.step->cancelled(t);
  h.run_step();
  EXPECT_EQ((h.replies[{tickets[4], 0}].finish), FinishReason::kCancelled);
  EXPECT_EQ(h.replies.size(), 4u) << "the ninth has not raised its flag, two are not there";
  for (uint64_t t : tickets) h.step->cancelled(t);
  h.run_step();
  for (size_t i = 0; i <= kWaiting; ++i)
    EXPECT_EQ((h.replies.contains({tickets[i], 0})), i == 1 || i == 7 || i % 2 == 0) << i;
  h.run();
  EXPECT_EQ(h.replies.size(), 1 + kWaiting);
}

// Two places and 40 requests that end in the order of their deadlines, which is not their own.
TEST(Limits, WaitingRequestsEndAtTheirDeadlinesInTheirOrder) {
  Harness h({.max_num_seqs = 2});
  std::vector<std::pair<uint64_t, int64_t>> asked;
  for (int32_t i = 0; i < 40; ++i) {
    auto r = h.request(prompt_of(10, 1), 1000);
    int64_t at_us = h.clock.now_us() + 1000 * (1 + i * 17 % 40);
    (i % 2 == 0 ? r->deadline_us : r->time_limit_us) = at_us;
    asked.emplace_back(h.submit(std::move(r)), at_us);
  }
  for (int32_t step = 0; step <= 40; ++step) {
    int64_t now_us = h.clock.now_us();
    h.run_step();
    for (size_t i = 0; i < asked.size(); ++i) {
      FinishReason want = asked[i].second > now_us ? FinishReason::kNone
                          : i % 2 == 0             ? FinishReason::kDeadline
                                                   : FinishReason::kTimeLimit;
      ASSERT_EQ((h.replies[{asked[i].first, 0}].finish), want) << "step " << step << " of " << i;
    }
  }
  EXPECT_TRUE(h.step->idle());
}

TEST(Limits, ADeadlineIsLateByLessThanAStepAndAPastOneCostsNothing) {
  for (int64_t ms : {0, 1, 3, 10, 20}) {
    Harness h({});
    auto r = h.request(prompt_of(10, 1), 200);
    r->deadline_us = h.clock.now_us() + 1000 * ms;
    uint64_t t = h.submit(std::move(r));
    h.run();
    EXPECT_EQ((h.replies[{t, 0}].finish), FinishReason::kDeadline);
    EXPECT_EQ((h.replies[{t, 0}].tokens.size()), static_cast<size_t>(ms));  // one token a step
    EXPECT_EQ(h.target->n_forwards > 0, ms > 0);
  }
}

TEST(Limits, ATimeLimitGivesWhatThereIs) {
  Harness h({});
  auto r = h.request(prompt_of(10, 1), 200);
  r->time_limit_us = h.clock.now_us() + 7000;
  uint64_t t = h.submit(std::move(r));
  h.run();
  EXPECT_EQ((h.replies[{t, 0}].finish), FinishReason::kTimeLimit);
  EXPECT_EQ((h.replies[{t, 0}].tokens.size()), 7u);
}

TEST(Limits, ShutdownEndsEverythingAtOnce) {
  Harness h({.draft_agreement = 40, .k = 3, .max_num_seqs = 4});
  for (int32_t i = 0; i < 9; ++i) h.submit(h.request(prompt_of(20, 1), 200));
  for (int32_t i = 0; i < 5; ++i) h.run_step();
  h.step->finish_everything(FinishReason::kShutdown);
  h.collect();
  EXPECT_EQ(h.replies.size(), 9u);
  for (auto& [key, reply] : h.replies) EXPECT_EQ(reply.finish, FinishReason::kShutdown);
  EXPECT_EQ(h.step->kv().n_in_use(), 0);
  h.step->check_integrity();
}

struct Spoilt {
  int32_t behind, column;  // so many tokens of the answer, a place among the logits
  float value;
};

// Four neighbours and, between them, the one whose prompt begins with kBad.
constexpr int32_t kBad = 3, kGood = 4, kAnswer = 30;
std::map<uint64_t, Reply> five_replies(HarnessOptions o, float temperature, const Spoilt* spoilt) {
  Harness h(o);
  if (spoilt != nullptr)
    h.target->spoil = [spoilt](std::span<const int32_t> text, std::span<float> logits) {
      if (text.front() == kBad && text.size() == static_cast<size_t>(20 + spoilt->behind))
        logits[static_cast<size_t>(spoilt->column)] = spoilt->value;
    };
  for (uint32_t i = 0; i < 5; ++i) {
    auto r = h.request(prompt_of(20, i), kAnswer);
    r->prompt[0] = i == 2 ? kBad : kGood;
    r->sampling.temperature = temperature;
    r->has_seed = true;
    h.submit(std::move(r));
  }
  h.run();
  EXPECT_EQ(h.step->kv().n_in_use(), 0);
  std::map<uint64_t, Reply> replies;
  for (auto& [key, reply] : h.replies) replies.emplace(key.first, reply);
  return replies;
}

// RELIABILITY R11: behind the prompt, in the middle and at the last token, whatever the column; a
// draft of k tokens may meet the row so much earlier.
TEST(Limits, NonFiniteLogitsEndThatSequenceAlone) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (float temperature : {0.0f, 0.8f})
    for (int32_t k : {0, 4}) {
      const HarnessOptions o{.draft_agreement = 50, .k = k};
      const std::map<uint64_t, Reply> quiet = five_replies(o, temperature, nullptr);
      for (int32_t behind : {0, 17, kAnswer - 1})
        for (int32_t column : {0, 17, o.model.vocabulary - 1})
          for (float value : {std::nanf(""), kInf}) {
            SCOPED_TRACE(testing::Message() << "k " << k << " behind " << behind << " column "
                                            << column << " value " << value);
            Spoilt spoilt{behind, column, value};
            for (auto& [ticket, reply] : five_replies(o, temperature, &spoilt)) {
              const std::vector<int32_t>& want = quiet.at(ticket).tokens;
              if (ticket != std::next(quiet.begin(), 2)->first) {
                EXPECT_EQ(reply.tokens, want);
                EXPECT_EQ(reply.finish, FinishReason::kLength);
                continue;
              }
              EXPECT_EQ(reply.finish, FinishReason::kCorrupted);
              const auto n = static_cast<int32_t>(reply.tokens.size());
              EXPECT_LE(n, behind);
              EXPECT_GE(n, behind - k);
              EXPECT_TRUE(std::equal(reply.tokens.begin(), reply.tokens.end(), want.begin()));
            }
          }
    }
}

}  // namespace
}  // namespace pf
