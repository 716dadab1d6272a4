// Truth: scripted texts on simulated time. A small and a large draft model are resident; requests
// come one after another, each easy, hard, or changing on its way. The choice sees only what its
// steps took and what was kept; it is compared with each draft alone, and with whoever would know
// the texts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include "batch/plan.h"
#include "speculation/measured_choice.h"

namespace pf {
namespace {

constexpr int32_t kDeepest = 8;
constexpr double kCost[] = {0.03,
                            0.15};  // of a pass of the small and the large draft, in plain steps

double target_seconds(double rows) { return 1 + 0.01 * (rows - 1); }
double draft_seconds(size_t d, double rows) { return kCost[d] * (1 + 0.01 * (rows - 1)); }

// How likely each draft's tokens are kept.
struct Text {
  double small, large;
  double of(size_t drafter) const { return drafter == 0 ? small : large; }
};
constexpr Text kEasy = {0.85, 0.9}, kHard = {0.3, 0.8};

using Script = std::function<Text(int32_t request, int32_t token)>;

struct Outcome {
  double seconds = 0;
  int64_t tokens = 0;
  int32_t rounds[2] = {}, fed[2] = {};
  double speed() const { return static_cast<double>(tokens) / seconds; }
};

class Server {
 public:
  // `only`: this draft alone; -1: both.
  explicit Server(int32_t only = -1)
      : only_(only),
        control_({.rule = LengthRule::kAdaptive,
                  .cost_ratios = {static_cast<float>(kCost[0]), static_cast<float>(kCost[1])}}) {
    for (int32_t rows = 1; rows <= 16; rows *= 2) control_.learn_target(rows, target_seconds(rows));
  }

  Outcome serve(const Script& script, int32_t n_requests, int32_t n_tokens, int32_t n_prompt = 40) {
    Outcome sum;
    for (int32_t r = 0; r < n_requests; ++r) {
      DraftHistory histories[2];
      TextEase ease;
      int64_t written = 0, fed[2] = {0, 0};  // fed: of prompt and output, by each draft
      while (written < n_tokens) {
        const Text text = script(r, static_cast<int32_t>(written));
        round(text, n_prompt + written, n_tokens - written, histories, &ease, fed, &sum, &written);
      }
    }
    return sum;
  }

 private:
  void round(const Text& text, int64_t length, int64_t left, DraftHistory* histories,
             TextEase* ease, int64_t* fed, Outcome* sum, int64_t* written) {
    std::vector<DraftAsk> offers;
    for (int32_t d = 0; d < 2; ++d)
      if (only_ < 0 || only_ == d)
        offers.push_back({.history = &histories[d],
                          .text = only_ < 0 ? ease : nullptr,
                          .drafter = d,
                          .match = 100,
                          .max_depth = static_cast<int32_t>(std::min<int64_t>(kDeepest, left - 1)),
                          .lag = length - fed[d],
                          .n_left = left});
    std::vector<DraftOffers> contest = {{offers}};
    choice_.choose(control_, contest);
    std::vector<DraftAsk> asks = {contest[0].offers[contest[0].picked]};
    control_.plan({1, 1, 0, 512}, asks);
    DraftAsk& ask = asks[0];
    const auto d = static_cast<size_t>(ask.drafter);
    StepReport report{.n_rows = 1, .n_sequences = 1};
    std::vector<std::vector<int32_t>> passes(2);
    double draft[2] = {0, 0};
    if (ask.depth > 0) {
      ++sum->rounds[d];
      sum->fed[d] += static_cast<int32_t>(ask.lag);
      draft[d] = draft_seconds(d, static_cast<double>(ask.lag));
      fed[d] = length;
      if (ask.lag > kInlineCatchupTokens) ask.depth = 0, report.pure = false;
    }
    int32_t kept = 0;
    while (kept < ask.depth && uniform_(random_) < text.of(d)) ++kept;
    for (int32_t l = 0; l < ask.depth; ++l) passes[d].push_back(1);
    if (ask.depth > 0) passes[d][0] = static_cast<int32_t>(ask.lag);
    for (int32_t l = 1; l < ask.depth; ++l) draft[d] += draft_seconds(d, 1);
    report.n_rows += ask.depth;
    report.n_tokens = kept + 1;
    report.target_seconds = target_seconds(report.n_rows);
    report.total_seconds = report.target_seconds + draft[0] + draft[1];
    report.draft_seconds = draft;
    report.draft_passes = passes;
    std::vector<DraftRound> rounds = {
        {ask.history, ask.drafter, ask.match, ask.depth, kept, ask.text}};
    control_.learn(rounds, report);
    choice_.earn(1, report.total_seconds);
    if (kept > 0) fed[d] = length + std::min<int64_t>(kept, ask.depth - 1);
    *written += kept + 1;
    sum->tokens += kept + 1;
    sum->seconds += report.total_seconds;
  }

  const int32_t only_;
  std::mt19937_64 random_{11};
  std::uniform_real_distribution<double> uniform_;
  DraftLength control_;
  MeasuredChoice choice_;
};

Script always(Text text) {
  return [=](int32_t, int32_t) { return text; };
}
Script mixed() {
  return [](int32_t request, int32_t) { return request % 2 == 0 ? kEasy : kHard; };
}

// Tokens per second of both beside each alone and beside who knows the texts.
struct Speeds {
  double small, large, both, ideal;
  Outcome of_both;
};
Speeds race(const char* name, const Script& script, double easy_share, int32_t n_tokens) {
  constexpr int32_t kRequests = 40;
  const double easy = Server(0).serve(always(kEasy), kRequests, n_tokens).speed(),
               hard = Server(1).serve(always(kHard), kRequests, n_tokens).speed();
  Speeds s;
  s.small = Server(0).serve(script, kRequests, n_tokens).speed();
  s.large = Server(1).serve(script, kRequests, n_tokens).speed();
  s.of_both = Server().serve(script, kRequests, n_tokens);
  s.both = s.of_both.speed();
  s.ideal = 1 / (easy_share / easy + (1 - easy_share) / hard);
  std::printf("%-8s %3d tokens: small %.2f large %.2f both %.2f, ideal %.2f; rounds %d and %d\n",
              name, n_tokens, s.small, s.large, s.both, s.ideal, s.of_both.rounds[0],
              s.of_both.rounds[1]);
  return s;
}

// By the formula at the best depths: on easy text 3.9 tokens in the time of a plain step with the
// small draft and 2.6 with the large one; on hard text 1.3 and 2.0. The shares of the ideal below
// are bounds that were set after seeing the figures.
TEST(Difficulty, EasyTextsGoToTheSmallDraft) {
  for (int32_t n : {100, 400}) {
    Speeds s = race("easy", always(kEasy), 1, n);
    EXPECT_GE(s.both, 0.97 * s.ideal);
    EXPECT_GT(s.of_both.rounds[0], 10 * s.of_both.rounds[1]);
  }
}

TEST(Difficulty, HardTextsGoToTheLargeOne) {
  for (int32_t n : {100, 400}) {
    Speeds s = race("hard", always(kHard), 0, n);
    EXPECT_GE(s.both, 0.94 * s.ideal);
    EXPECT_GT(s.of_both.rounds[1], 4 * s.of_both.rounds[0]);
  }
}

TEST(Difficulty, EveryRequestFindsItsOwn) {
  for (int32_t n : {100, 400}) {
    Speeds s = race("mixed", mixed(), 0.5, n);
    EXPECT_GE(s.both, 0.94 * s.ideal);
    EXPECT_GT(s.both, 1.08 * std::max(s.small, s.large));
  }
}

// Each half of 200 tokens is another text: about 50 rounds of the small draft, 100 of the large
// one.
TEST(Difficulty, ARequestChangesItsDraftOnTheWay) {
  Speeds s = race(
      "halves",
      [](int32_t request, int32_t token) {
        return (token / 200 + request) % 2 == 0 ? kEasy : kHard;
      },
      0.5, 400);
  EXPECT_GE(s.both, 0.9 * s.ideal);
  EXPECT_GT(s.both, 1.05 * std::max(s.small, s.large));
}

// A prompt of 8,000 tokens costs the large draft 12 plain steps before it can say anything, and
// saves .27 of one with each of the hard text's tokens: not worth it for 8 tokens, well worth it
// for 200.
TEST(Difficulty, CatchingUpIsCounted) {
  Server server;
  server.serve(mixed(), 20, 200);  // it knows the drafts
  const Outcome few = server.serve(always(kHard), 40, 8, 8000),
                many = server.serve(always(kHard), 40, 200, 8000);
  std::printf(
      "8,000 tokens to catch up with: %d of %d rounds with the large draft where 8 tokens "
      "are left, %d of %d where 200 are\n",
      few.rounds[1], few.rounds[0] + few.rounds[1], many.rounds[1],
      many.rounds[0] + many.rounds[1]);
  EXPECT_LT(few.rounds[1], few.rounds[0] / 10);
  EXPECT_GT(many.rounds[1], many.rounds[0]);
}

TEST(Difficulty, WhatOneDraftMeetsForetellsAnother) {
  DifficultyModel model(2);
  std::mt19937 random(5);
  std::uniform_real_distribution<double> u;
  auto round = [&](int32_t drafter, Text text, TextEase* ease) {
    int32_t kept = 0;
    while (kept < 4 && u(random) < text.of(static_cast<size_t>(drafter))) ++kept;
    model.observe(drafter, 4, kept, ease);
  };
  for (int32_t request = 0; request < 200; ++request) {
    TextEase ease;
    for (int32_t i = 0; i < 20; ++i) round(i % 2, request % 2 == 0 ? kEasy : kHard, &ease);
  }
  // Fifty texts of each kind on which only the small draft was seen: what is thought of both, on
  // average.
  for (const Text& text : {kEasy, kHard}) {
    double small = 0, large = 0;
    for (int32_t t = 0; t < 50; ++t) {
      TextEase ease;
      for (int32_t i = 0; i < 10; ++i) round(0, text, &ease);
      float level = 0;
      model.estimate(ease, 0, {&level, 1});
      small += static_cast<double>(level) / 50;
      model.estimate(ease, 1, {&level, 1});
      large += static_cast<double>(level) / 50;
    }
    EXPECT_NEAR(small, text.small, 0.07);
    EXPECT_NEAR(large, text.large, 0.05);
  }
}

}  // namespace
}  // namespace pf
