// Truth: the formula of SPECULATION section 4 for every fixed length, on simulated time: costs and
// acceptance are given, the controller sees only what its steps took and what was kept.
#include "speculation/draft_length.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>

#include "batch/plan.h"

namespace pf {
namespace {

constexpr int32_t kDeepest = 10;

struct Machine {
  const char* name;
  std::function<double(double)> target;  // seconds of a pass by its rows
  std::function<double(double)> draft;   // of a draft pass
  float assumed_ratio;
};

double roofline(double rows, double slope, double knee) {
  return (1 + slope * (rows - 1)) * std::pow(1 + std::pow(rows / knee, 4), 0.25);
}

std::vector<Machine> machines() {
  return {{"CPU, c = .05", [](double m) { return roofline(m, 0.01, 16); },
           [](double m) { return 0.05 * roofline(m, 0.01, 16); }, 0.05f},
          {"CPU, c = .20", [](double m) { return roofline(m, 0.01, 16); },
           [](double m) { return 0.20 * roofline(m, 0.01, 16); }, 0.1f},
          {"GPU, c = .06", [](double m) { return roofline(m, 0.0005, 150); },
           [](double m) { return 0.06 * roofline(m, 0.0005, 150); }, 0.04f},
          {"n-gram", [](double m) { return roofline(m, 0.02, 12); },
           [](double m) { return 0.001 * m; }, 0.001f}};
}

double expected_tokens(double a, int32_t depth) {  // (1 - a^(k + 1)) / (1 - a)
  double tokens = 1, reach = 1;
  for (int32_t d = 0; d < depth; ++d) tokens += reach *= a;
  return tokens;
}

double fixed_speed(const Machine& m, double a, int32_t batch, int32_t k) {
  return batch * expected_tokens(a, k) / (k * m.draft(batch) + m.target(batch * (k + 1)));
}

struct Outcome {
  double tokens = 0, seconds = 0, measured_speedup = 1;
  double speed() const { return tokens / seconds; }
};

// Acceptance of a step is a function of the step's number.
class Simulation {
 public:
  Simulation(const Machine& machine, int32_t batch, double noise = 0, bool blind = false)
      : machine_(machine),
        noise_(0, noise),
        histories_(static_cast<size_t>(batch)),
        control_({LengthRule::kAdaptive, 200, {machine.assumed_ratio}}) {
    if (blind) return;
    // What a server measures before it is ready, one pass each.
    for (int32_t rows = 1; rows <= 128; rows *= 2)
      control_.learn_target(rows, machine.target(rows) * std::exp(noise_(random_)));
    control_.learn_draft(0, 1, machine.draft(1) * std::exp(noise_(random_)));
  }

  Outcome run(double a, int32_t n_steps) {
    Outcome out;
    const SpeedupMeter::Total before = control_.speedup();
    for (int32_t i = 0; i < n_steps; ++i) step(a, &out);
    out.measured_speedup = control_.speedup().speedup_since(before);
    return out;
  }
  DraftLength& control() { return control_; }
  void set_batch(int32_t batch) { histories_.resize(static_cast<size_t>(batch)); }
  int32_t last_nodes() const { return last_nodes_; }

 private:
  void step(double a, Outcome* out) {
    std::vector<DraftAsk> asks;
    for (DraftHistory& h : histories_)
      asks.push_back({.history = &h, .match = 5, .max_depth = kDeepest});
    auto batch = static_cast<int32_t>(histories_.size());
    control_.plan({batch, batch, 0, 512}, asks);
    std::vector<DraftRound> rounds;
    std::vector<std::vector<int32_t>> passes(1);
    StepReport report{.n_rows = batch, .n_sequences = batch};
    for (DraftAsk& ask : asks) {
      int32_t kept = 0;
      while (kept < ask.depth && uniform_(random_) < a) ++kept;
      rounds.push_back({ask.history, 0, 5, ask.depth, kept});
      report.n_rows += ask.depth;
      report.n_tokens += kept + 1;
      out->tokens += expected_tokens(a, ask.depth);
      for (int32_t d = 0; d < ask.depth; ++d) {
        if (passes[0].size() <= static_cast<size_t>(d)) passes[0].push_back(0);
        ++passes[0][static_cast<size_t>(d)];
      }
    }
    last_nodes_ = report.n_rows - batch;
    double draft = 0, target = machine_.target(report.n_rows);
    for (int32_t rows : passes[0]) draft += machine_.draft(rows);
    out->seconds += draft + target;
    double measured[] = {draft * std::exp(noise_(random_))};
    report.target_seconds = target * std::exp(noise_(random_));
    report.total_seconds = measured[0] + report.target_seconds;
    report.draft_seconds = measured;
    report.draft_passes = passes;
    control_.learn(rounds, report);
  }

  const Machine& machine_;
  std::mt19937_64 random_{11};
  std::uniform_real_distribution<double> uniform_;
  std::normal_distribution<double> noise_;
  std::vector<DraftHistory> histories_;
  DraftLength control_;
  int32_t last_nodes_ = 0;
};

// C6. Tokens are counted by their expectation for the lengths that were chosen, so that the figures
// are of the choice and not of luck. The learning is part of it: every point starts with what a
// server measures at its start.
void expect_c6(double noise, std::vector<int32_t> batches, int stride, double over_plain,
               double over_best) {
  for (const Machine& machine : machines()) {
    std::printf("%s, noise %.0f %%: speed of adaptive over plain | over the best fixed K\n      ",
                machine.name, 100 * noise);
    for (int32_t batch : batches) std::printf("      B = %-3d", batch);
    std::printf("\n");
    for (int step = 0; step <= 10; step += stride) {
      double a = 0.1 * step;
      char text[32];
      std::snprintf(text, sizeof(text), "a=%.1f ", a);
      std::string line = text;
      for (int32_t batch : batches) {
        Outcome out = Simulation(machine, batch, noise).run(a, 3000);
        double plain = fixed_speed(machine, a, batch, 0), best = plain;
        for (int32_t k = 1; k <= kDeepest; ++k)
          best = std::max(best, fixed_speed(machine, a, batch, k));
        std::snprintf(text, sizeof(text), "  %5.2f|%.3f", out.speed() / plain, out.speed() / best);
        line += text;
        EXPECT_GE(out.speed(), over_plain * plain) << machine.name << " a=" << a << " B=" << batch;
        EXPECT_GE(out.speed(), over_best * best) << machine.name << " a=" << a << " B=" << batch;
      }
      std::printf("%s\n", line.c_str());
    }
  }
}

TEST(DraftLength, IsNeverMuchBelowPlainNorBelowTheBestFixedLength) {
  expect_c6(0, {1, 2, 4, 8, 16, 32, 64}, 1, 0.98, 0.97);
}

// Every measured time is off by 10 % (log-normal). A settled knot of a cost curve takes .04 of each
// sample, so it is off by .1 sqrt(.04 / 1.96) = 1.4 %; where two lengths differ by less than
// 3 sqrt(2) of that, 6 %, either may be taken. K = 0 is measured as often as all others together,
// so the goal over plain stands.
TEST(DraftLength, StaysNearThatOnANoisyMachine) { expect_c6(0.1, {1, 4, 64}, 2, 0.98, 0.94); }

// A server that has measured nothing before its first step looks for the knee while it serves: that
// costs at most what 100 steps take, 3.3 % of the first 3,000. Behind them the goals hold, but for
// one of the 72 points, which is seen to stay at .954: 24 rows lie between the 16 and 40 that were
// tried, and the roofline through these makes them 6 % dearer than they are.
TEST(DraftLength, ReachesThatWithoutAnythingMeasuredBefore) {
  int n_missed = 0;
  for (const Machine& machine : machines())
    for (int32_t batch : {1, 8, 32})
      for (double a : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}) {
        double plain = fixed_speed(machine, a, batch, 0), best = plain;
        for (int32_t k = 1; k <= kDeepest; ++k)
          best = std::max(best, fixed_speed(machine, a, batch, k));
        Simulation simulation(machine, batch, 0, true);
        const double first = simulation.run(a, 3000).speed(),
                     then = simulation.run(a, 3000).speed();
        const std::string at =
            std::string(machine.name) + " a=" + std::to_string(a) + " B=" + std::to_string(batch);
        EXPECT_GE(first, (0.98 - 100.0 / 3000) * plain) << at;
        EXPECT_GE(first, (0.97 - 100.0 / 3000) * best) << at;
        EXPECT_GE(then, 0.98 * plain) << at;
        EXPECT_GE(then, 0.95 * best) << at;
        n_missed += then < 0.97 * best;
      }
  EXPECT_LE(n_missed, 1);
}

TEST(DraftLength, LeavesZeroWhenAcceptanceReturns) {
  Machine machine = machines()[0];
  Simulation simulation(machine, 4);
  simulation.run(0.9, 500);
  EXPECT_GT(simulation.run(0.9, 500).speed(), 0.95 * fixed_speed(machine, 0.9, 4, 5));
  simulation.run(0, 1000);
  EXPECT_GT(simulation.run(0, 500).speed(), 0.98 * fixed_speed(machine, 0, 4, 0));
  simulation.run(0.9, 1000);
  EXPECT_GT(simulation.run(0.9, 500).speed(), 0.95 * fixed_speed(machine, 0.9, 4, 5));
}

// The machine stood still while the server measured passes of two and six rows at its start, and
// every answer begins with a prompt that the draft has not read: reading it takes a step in which
// nothing is drafted, and answers end before such a step could be paid for twice.
TEST(DraftLength, AProbeThatHadToCatchUpStillDrafts) {
  auto target = [](double rows) { return 1 + 0.05 * (rows - 1); };
  DraftLength control({LengthRule::kAdaptive, 200, {0.06f}});
  for (auto [rows, seconds] : {std::pair{1, 1.0}, {2, 4.0}, {6, 20.0}})
    control.learn_target(rows, seconds);
  control.learn_draft(0, 1, 0.06);
  std::mt19937_64 random(3);
  std::bernoulli_distribution is_right(0.6);
  double tokens = 0, seconds = 0;
  for (int answer = 0; answer < 400; ++answer) {
    DraftHistory history;
    int64_t lag = 150;
    if (answer == 200) tokens = seconds = 0;
    for (int i = 0; i < 96; ++i) {
      DraftAsk ask{.history = &history, .match = 1000, .max_depth = kDeepest, .lag = lag};
      control.plan({1, 1, 0, 512}, {&ask, 1});
      const bool catches_up = ask.depth > 0 && lag > kInlineCatchupTokens;
      const int32_t depth = catches_up ? 0 : ask.depth;
      int32_t kept = 0;
      while (kept < depth && is_right(random)) ++kept;
      const double draft = catches_up ? 0.5 : 0.06 * depth;
      std::vector<std::vector<int32_t>> passes(1, std::vector<int32_t>(depth, 1));
      const double drafts[] = {draft};
      DraftRound round{&history, 0, 1000, depth, kept};
      control.learn({&round, 1}, {.n_rows = 1 + depth,
                                  .n_sequences = 1,
                                  .n_tokens = kept + 1,
                                  .pure = !catches_up,
                                  .target_seconds = target(1 + depth),
                                  .total_seconds = target(1 + depth) + draft,
                                  .draft_seconds = drafts,
                                  .draft_passes = passes});
      lag = ask.depth > 0 ? 0 : lag + 1;
      tokens += kept + 1;
      seconds += target(1 + depth) + draft;
    }
  }
  // One level would give 1.6 tokens in 1.11 s.
  EXPECT_GT(tokens / seconds, 1.4);
}

TEST(DraftLength, DraftsNothingUnderLoadAndReturnsWithItsEnd) {
  Machine machine = machines()[1];
  Simulation simulation(machine, 1);
  simulation.run(0.7, 500);
  EXPECT_GT(simulation.last_nodes(), 0);
  simulation.set_batch(64);
  simulation.run(0.7, 500);
  EXPECT_LE(simulation.last_nodes(), 8) << "no more than a probe";
  simulation.set_batch(1);
  EXPECT_GT(simulation.run(0.7, 200).speed(), 1.15 * fixed_speed(machine, 0.7, 1, 0));
}

// A pass takes 10 and a step with K = 0 12, at any number of sequences. Three tokens each in a step
// of 18 are 36 over 18; and when the machine is twice as slow, 72 over 36.
TEST(SpeedupMeter, WorkedByHand) {
  SpeedupMeter meter;
  meter.observe(2, 6, true, 10, 18);  // nobody knows what K = 0 takes
  EXPECT_EQ(meter.total().speedup_since({}), 0);
  meter.observe(2, 2, false, 10, 12);
  EXPECT_DOUBLE_EQ(meter.total().speedup_since({}), 1);
  const SpeedupMeter::Total first = meter.total();
  meter.observe(2, 6, true, 10, 18);
  EXPECT_DOUBLE_EQ(meter.total().speedup_since(first), 2);
  const SpeedupMeter::Total second = meter.total();
  meter.observe(1, 3, true, 20, 36);
  EXPECT_DOUBLE_EQ(meter.total().speedup_since(second), 2);
  EXPECT_EQ(meter.total().speedup_since(meter.total()), 0) << "idle since";
  // A pause of the machine counts as a step of 1.5 x 12: overhead 1.2 + .1 (1.8 - 1.2) = 1.26.
  meter.observe(1, 1, false, 10, 500);
  const SpeedupMeter::Total third = meter.total();
  meter.observe(1, 3, true, 10, 18);
  EXPECT_DOUBLE_EQ(meter.total().speedup_since(third), 3 * 12.6 / 18);
}

TEST(DraftLength, MeasuresItsSpeedupAgainstItsOwnPlainSteps) {
  Machine machine = machines()[0];
  Outcome out = Simulation(machine, 2).run(0.8, 4000);
  EXPECT_NEAR(out.measured_speedup, out.speed() / fixed_speed(machine, 0.8, 2, 0), 0.06);
}

// Ten samples of 1 make five six, one sample of 0 makes five four; and no more than may be drafted.
TEST(DraftLength, TheSimpleRulesGoByWhatWasKeptAndNoFurtherThanAllowed) {
  auto lengths = [](LengthRule rule, double share, int n_rounds) {
    DraftLength control({rule, 0, {0.1f}});
    DraftHistory history;
    for (int i = 0; i < n_rounds; ++i) {
      std::vector<DraftRound> rounds{{&history, 0, 5, 4, static_cast<int32_t>(4 * share)}};
      control.learn(rounds, {.n_rows = 5, .n_sequences = 1, .n_tokens = 1});
    }
    std::vector<DraftAsk> asks{{.history = &history, .match = 5, .max_depth = 10},
                               {.history = &history, .match = 5, .max_depth = 2}};
    control.plan({2, 2, 0, 64}, asks);
    return std::pair(asks[0].depth, asks[1].depth);
  };
  EXPECT_EQ(lengths(LengthRule::kWindow, 1, 9), std::pair(5, 2));
  EXPECT_EQ(lengths(LengthRule::kWindow, 1, 10), std::pair(6, 2));
  EXPECT_EQ(lengths(LengthRule::kWindow, 0, 10), std::pair(4, 2));
  EXPECT_EQ(lengths(LengthRule::kRate, 1, 10), std::pair(5, 2));
  EXPECT_EQ(lengths(LengthRule::kRate, 0, 1), std::pair(4, 2));
  EXPECT_EQ(lengths(LengthRule::kRate, 0, 30), std::pair(1, 1));
  EXPECT_EQ(lengths(LengthRule::kFixed, 0, 30), std::pair(10, 2));
}

// Rows for one of two drafts: the sequence that will just do until its deadline has them.
TEST(DraftLength, WhoIsShortOfTimeDraftsFirst) {
  DraftLength control({LengthRule::kAdaptive, 0, {0.01f}});
  for (int i = 0; i < 20; ++i)
    for (int32_t rows : {1, 2, 3, 4}) control.learn_target(rows, 1 + 0.01 * rows);
  DraftHistory a, b;
  std::vector<DraftAsk> asks{
      {.history = &a, .match = 5, .max_depth = 4},
      {.history = &b, .match = 5, .max_depth = 4, .weight = weight_of_slack(1'000'000, 1e6)}};
  control.plan({2, 2, 0, 3}, asks);
  EXPECT_EQ(asks[0].depth, 0);
  EXPECT_EQ(asks[1].depth, 1);
}

TEST(DraftLength, OneStepInSoManyRunsPlain) {
  DraftLength control({LengthRule::kFixed, 50, {0.1f}});
  DraftHistory history;
  int32_t n_plain = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<DraftAsk> asks{{.history = &history, .match = 5, .max_depth = 4}};
    control.plan({1, 1, 0, 64}, asks);
    EXPECT_TRUE(asks[0].depth == 4 || asks[0].depth == 0);
    n_plain += asks[0].depth == 0;
  }
  EXPECT_EQ(n_plain, 10);
}

TEST(DraftLength, WorthGrowsAsTheDeadlineNears) {
  EXPECT_EQ(weight_of_slack(10'000'000, 1e6), 1) << "ten times the time it needs";
  EXPECT_EQ(weight_of_slack(1'000'000, 1e6), 2) << "it will just do";
  EXPECT_EQ(weight_of_slack(500'000, 1e6), 4);
  EXPECT_EQ(weight_of_slack(-5, 1e6), 1) << "too late";
}

}  // namespace
}  // namespace pf
