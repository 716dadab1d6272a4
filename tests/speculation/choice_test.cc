// Truth: scripted acceptance and costs on simulated time. The choice sees only what its steps took
// and what was kept; it is compared with a server that has the best one of its drafters alone.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>

#include "base/philox.h"
#include "batch/plan.h"
#include "speculation/measured_choice.h"

namespace pf {
namespace {

constexpr int32_t kDeepest = 8;

struct Scripted {
  const char* name;
  std::function<double(double)> cost;  // seconds of a draft pass by its rows
  float assumed_ratio;                 // what the loader says of it
  std::function<double(int32_t step, int32_t sequence, int32_t match)> acceptance;
  std::function<int32_t(int32_t step, int32_t sequence)> match;  // 0: nothing to say
  bool keeps_kv = false;                                         // what it did not draft lags
};

double target_seconds(double rows) {
  return (1 + 0.01 * (rows - 1)) * std::pow(1 + std::pow(rows / 24, 4), 0.25);
}

Scripted model(const char* name, double c, double a) {
  return {name,
          [c](double m) { return c * (1 + 0.02 * m); },
          static_cast<float>(c),
          [a](int32_t, int32_t, int32_t) { return a; },
          [](int32_t, int32_t) { return 100; },
          true};
}

// Copies: matches of `share` of all steps, a fifth of them long, which are kept far more often.
Scripted copier(const char* name, double share, double a_short, double a_long) {
  Scripted s = model(name, 0, 0);
  s.cost = [](double m) { return 0.001 * m; };
  s.assumed_ratio = 0.002f;
  s.acceptance = [=](int32_t, int32_t, int32_t match) { return match >= 4 ? a_long : a_short; };
  s.match = [=](int32_t step, int32_t sequence) {
    PhiloxBlock b = philox(7, {static_cast<uint32_t>(step), static_cast<uint32_t>(sequence), 0, 0});
    if (uniform(b[0]) >= share) return 0;
    return uniform(b[1]) < 0.2 ? 4 : 2;
  };
  s.keeps_kv = false;
  return s;
}

double expected_tokens(double a, int32_t depth) {
  double tokens = 1, reach = 1;
  for (int32_t d = 0; d < depth; ++d) tokens += reach *= a;
  return tokens;
}

class Race {
 public:
  Race(std::vector<Scripted> drafters, int32_t batch, double noise = 0)
      : drafters_(std::move(drafters)), batch_(batch), noise_(0, noise), control_(options()) {
    for (int32_t rows = 1; rows <= 128; rows *= 2)
      control_.learn_target(rows, target_seconds(rows) * std::exp(noise_(random_)));
    size_t n = static_cast<size_t>(batch) * drafters_.size();
    histories_.resize(n);
    lags_.assign(n, 1);
    rounds_of.assign(drafters_.size(), 0);
  }

  double run(int32_t n_steps) {
    tokens_ = seconds_ = 0;
    for (int32_t i = 0; i < n_steps; ++i) step(n_++);
    return tokens_ / seconds_;
  }
  std::vector<int32_t> rounds_of;  // by drafter: rounds with a draft

 private:
  DraftLengthOptions options() const {
    DraftLengthOptions o{.rule = LengthRule::kAdaptive};
    for (const Scripted& d : drafters_) o.cost_ratios.push_back(d.assumed_ratio);
    return o;
  }
  size_t cell(int32_t sequence, int32_t drafter) const {
    return static_cast<size_t>(sequence) * drafters_.size() + static_cast<size_t>(drafter);
  }

  std::vector<DraftAsk> ask(int32_t step) {
    offers_.clear();
    std::vector<std::pair<size_t, size_t>> ranges;
    for (int32_t s = 0; s < batch_; ++s) {
      size_t first = offers_.size();
      for (int32_t d = 0; d < static_cast<int32_t>(drafters_.size()); ++d) {
        int32_t match = drafters_[static_cast<size_t>(d)].match(step, s);
        if (match == 0) continue;
        offers_.push_back({.history = &histories_[cell(s, d)],
                           .drafter = d,
                           .match = match,
                           .max_depth = kDeepest});
        if (drafters_[static_cast<size_t>(d)].keeps_kv) offers_.back().lag = lags_[cell(s, d)];
      }
      ranges.emplace_back(first, offers_.size() - first);
    }
    std::vector<DraftOffers> contests;
    std::vector<int32_t> who;
    for (int32_t s = 0; s < batch_; ++s) {
      auto [first, n] = ranges[static_cast<size_t>(s)];
      if (n == 0) continue;
      contests.push_back({std::span(offers_).subspan(first, n)});
      who.push_back(s);
    }
    choice_.choose(control_, contests);
    std::vector<DraftAsk> asks;
    for (const DraftOffers& c : contests) asks.push_back(c.offers[c.picked]);
    control_.plan({batch_, batch_, 0, 512}, asks);
    who_ = who;
    return asks;
  }

  void step(int32_t n) {
    std::vector<DraftAsk> asks = ask(n);
    std::vector<std::vector<int32_t>> passes(drafters_.size());
    std::vector<int64_t> fed(drafters_.size(), 0);  // rows of the first passes
    std::vector<DraftRound> rounds;
    StepReport report{.n_rows = batch_, .n_sequences = batch_};
    std::vector<int64_t> got(static_cast<size_t>(batch_), 1);
    std::vector<int32_t> with(static_cast<size_t>(batch_), -1);
    tokens_ += static_cast<double>(batch_) - static_cast<double>(asks.size());
    for (size_t i = 0; i < asks.size(); ++i) {
      DraftAsk& a = asks[i];
      auto d = static_cast<size_t>(a.drafter);
      auto s = static_cast<size_t>(who_[i]);
      if (a.depth > 0) fed[d] += std::max<int64_t>(1, a.lag), with[s] = a.drafter;
      if (a.depth > 0 && a.lag > kInlineCatchupTokens) a.depth = 0, report.pure = false;
      double keep = drafters_[d].acceptance(n, who_[i], a.match);
      int32_t kept = 0;
      while (kept < a.depth && uniform_(random_) < keep) ++kept;
      rounds.push_back({a.history, a.drafter, a.match, a.depth, kept});
      rounds_of[d] += a.depth > 0;
      report.n_rows += a.depth;
      got[s] = kept + 1;
      tokens_ += expected_tokens(keep, a.depth);
      passes[d].resize(std::max(passes[d].size(), static_cast<size_t>(a.depth)), 0);
      for (int32_t l = 0; l < a.depth; ++l) ++passes[d][static_cast<size_t>(l)];
      if (a.depth > 0) passes[d][0] += static_cast<int32_t>(std::max<int64_t>(1, a.lag)) - 1;
    }
    std::vector<double> draft(drafters_.size(), 0);
    double all = 0;
    for (size_t d = 0; d < drafters_.size(); ++d) {
      for (size_t l = 1; l < passes[d].size(); ++l) draft[d] += drafters_[d].cost(passes[d][l]);
      if (fed[d] > 0) draft[d] += drafters_[d].cost(static_cast<double>(fed[d]));
      all += draft[d];
      draft[d] *= std::exp(noise_(random_));
    }
    for (int32_t s = 0; s < batch_; ++s)
      for (int32_t d = 0; d < static_cast<int32_t>(drafters_.size()); ++d) {
        int64_t& lag = lags_[cell(s, d)];
        lag = with[static_cast<size_t>(s)] == d ? 1 : lag + got[static_cast<size_t>(s)];
      }
    double target = target_seconds(report.n_rows);
    seconds_ += all + target;
    for (int64_t t : got) report.n_tokens += t;
    report.target_seconds = target * std::exp(noise_(random_));
    report.total_seconds = report.target_seconds;
    for (double t : draft) report.total_seconds += t;
    report.draft_seconds = draft;
    report.draft_passes = passes;
    control_.learn(rounds, report);
    choice_.earn(report.n_sequences, report.total_seconds);
  }

  std::vector<Scripted> drafters_;
  const int32_t batch_;
  std::mt19937_64 random_{11};
  std::uniform_real_distribution<double> uniform_;
  std::normal_distribution<double> noise_;
  DraftLength control_;
  MeasuredChoice choice_;
  std::vector<DraftHistory> histories_;  // [sequences, drafters]
  std::vector<int64_t> lags_;
  std::vector<DraftAsk> offers_;
  std::vector<int32_t> who_;
  double tokens_ = 0, seconds_ = 0;
  int32_t n_ = 0;
};

double best_alone(const std::vector<Scripted>& drafters, int32_t batch, double noise = 0) {
  double best = 0;
  for (const Scripted& d : drafters) best = std::max(best, Race({d}, batch, noise).run(3000));
  return best;
}

struct Scene {
  const char* name;
  std::vector<Scripted> drafters;
};

std::vector<Scene> scenes() {
  Scripted waning = model("waning", 0.1, 0), rising = model("rising", 0.1, 0);
  waning.acceptance = [](int32_t step, int32_t, int32_t) { return step % 2000 < 1000 ? 0.8 : 0.3; };
  rising.acceptance = [](int32_t step, int32_t, int32_t) { return step % 2000 < 1000 ? 0.3 : 0.8; };
  Scripted even = model("even", 0.1, 0), odd = model("odd", 0.1, 0);
  even.acceptance = [](int32_t, int32_t s, int32_t) { return s % 2 == 0 ? 0.85 : 0.2; };
  odd.acceptance = [](int32_t, int32_t s, int32_t) { return s % 2 == 1 ? 0.85 : 0.2; };
  Scripted lied = model("dearer than said", 0.4, 0.9);
  lied.assumed_ratio = 0.02f;
  return {
      {"a cheap and a good model", {model("cheap", 0.03, 0.6), model("good", 0.15, 0.85)}},
      {"the first is useless", {model("useless", 0.05, 0.02), model("good", 0.1, 0.8)}},
      {"the second is useless", {model("good", 0.1, 0.8), model("useless", 0.05, 0.02)}},
      {"alike", {model("one", 0.1, 0.7), model("other", 0.1, 0.7)}},
      {"nobody helps", {model("one", 0.1, 0.05), model("other", 0.2, 0.03)}},
      {"rank changes with time", {waning, rising}},
      {"rank differs by sequence", {even, odd}},
      {"the loader was wrong", {lied, model("fair", 0.1, 0.7)}},
      {"n-grams that are kept and a model",
       {copier("ngram", 0.4, 0.8, 0.95), model("m", 0.12, 0.75)}},
      {"n-grams that are not, but for long ones",
       {copier("ngram", 0.5, 0.2, 0.95), model("m", 0.1, 0.75)}},
      {"six",
       {copier("ngram", 0.3, 0.5, 0.9), copier("suffix", 0.4, 0.6, 0.8), model("a", 0.05, 0.5),
        model("b", 0.1, 0.75), model("c", 0.3, 0.9), model("d", 0.02, 0.3)}},
  };
}

void expect_near_the_best(double noise, double share) {
  std::printf("noise %.0f %%: speed of the choice over the best drafter alone\n", 100 * noise);
  for (const Scene& scene : scenes()) {
    std::string line = scene.name;
    line.resize(42, ' ');
    for (int32_t batch : {1, 4, 16}) {
      double best = best_alone(scene.drafters, batch, noise);
      double ratio = Race(scene.drafters, batch, noise).run(3000) / best;
      char text[32];
      std::snprintf(text, sizeof(text), "  B=%-2d %.3f", batch, ratio);
      line += text;
      EXPECT_GE(ratio, share) << scene.name << " B=" << batch;
    }
    std::printf("%s\n", line.c_str());
  }
}

// What it may cost not to know: 1.2 % of the time for trials of those that are not used, .8 % for
// probes of those who draft nothing, and a plain step in 200, .5 %. The rest to the goal of .97 is
// for learning in the first of 3,000 steps. (To three digits: one point is seen at .96998.)
TEST(Choice, IsNeverMuchBelowTheBestDrafterAlone) { expect_near_the_best(0, 0.9695); }

// Every measured time is off by 10 % (log-normal). A settled knot of a cost curve takes .04 of each
// sample, so it is off by .1 sqrt(.04 / 1.96) = 1.4 %; of two offers that differ by less than
// 3 sqrt(2) of that, 6 %, either may be taken. On average over the steps that is half of it, beside
// the 2.5 % above.
TEST(Choice, NorFarBelowOnANoisyMachine) { expect_near_the_best(0.1, 0.945); }

TEST(Choice, TakesNgramsWhenTheyMatchAndTheModelElse) {
  std::vector<Scripted> list = {copier("ngram", 0.3, 0.8, 0.95), model("m", 0.08, 0.8)};
  Race race(list, 1);
  EXPECT_GT(race.run(3000), 1.1 * best_alone(list, 1));
  EXPECT_GT(race.rounds_of[0], 750) << "of about 900 matches";
  EXPECT_GT(race.rounds_of[1], 1800);
}

TEST(Choice, LeavesShortMatchesToTheModelWhereTheyAreRarelyKept) {
  Race race({copier("ngram", 0.5, 0.1, 0.95), model("m", 0.05, 0.8)}, 1);
  race.run(1000);
  std::vector<int32_t> before = race.rounds_of;
  race.run(2000);
  EXPECT_GT(race.rounds_of[0] - before[0], 150) << "of about 200 long matches";
  EXPECT_LT(race.rounds_of[0] - before[0], 320) << "of about 1,000 matches";
}

TEST(Choice, FollowsWhomTheSequenceSuits) {
  std::vector<Scene> all = scenes();
  const std::vector<Scripted>& list = all[6].drafters;
  EXPECT_GT(Race(list, 4).run(3000), 1.05 * best_alone(list, 4));
  const std::vector<Scripted>& in_time = all[5].drafters;
  EXPECT_GT(Race(in_time, 1).run(4000), 1.05 * best_alone(in_time, 1));
}

TEST(Choice, TheFirstOfEqualsDrafts) {
  DraftLength control({LengthRule::kFixed, 0, {0.1f, 0.1f}});
  MeasuredChoice choice;
  DraftHistory a, b;
  std::vector<DraftAsk> offers{{.history = &a, .drafter = 0, .match = 9, .max_depth = 4},
                               {.history = &b, .drafter = 1, .match = 9, .max_depth = 4}};
  std::vector<DraftOffers> contests{{offers}};
  for (int i = 0; i < 5; ++i) choice.choose(control, contests);
  EXPECT_EQ(contests[0].picked, 0u);
  EXPECT_EQ(b.n_idle, 5);
  EXPECT_EQ(a.n_idle, 0);
}

}  // namespace
}  // namespace pf
