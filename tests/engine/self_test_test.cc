// Truth: a model without faults passes; one fault at a time is found and named.
#include "engine/self_test.h"

#include <gtest/gtest.h>

#include "engine/harness.h"

namespace pf {
namespace {

// HashBackend with something wrong in what it answers.
class FaultyBackend final : public Backend {
 public:
  using Fault = std::function<void(std::span<const AcceptJob>, std::span<AcceptResult>)>;
  FaultyBackend(Backend& inner, Fault fault) : inner_(inner), fault_(std::move(fault)) {}

  const BackendInfo& info() const override { return inner_.info(); }
  void forward(const Batch& batch) override { inner_.forward(batch); }
  void accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) override {
    inner_.accept(jobs, results);
    fault_(jobs, results);
  }
  void score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) override {
    inner_.score(jobs, results);
  }
  void read_logits(int32_t first, int32_t n, View<float, 2> out) override {
    inner_.read_logits(first, n, out);
  }
  void propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) override {
    inner_.propose(jobs, trees);
  }
  HiddenStates hidden_states() const override { return inner_.hidden_states(); }
  void keep_hidden(std::span<const HiddenKeep> keeps) override { inner_.keep_hidden(keeps); }
  void propose_early(int32_t n_layers, std::span<const ProposeJob> jobs,
                     std::span<DraftTree> trees) override {
    inner_.propose_early(n_layers, jobs, trees);
  }
  void copy_blocks(std::span<const BlockCopy> copies) override { inner_.copy_blocks(copies); }
  void move_slots(std::span<const SlotMove> moves) override { inner_.move_slots(moves); }

 private:
  Backend& inner_;
  Fault fault_;
};

std::string verdict(const FaultyBackend::Fault& fault) {
  Clock clock(1);
  HashBackend inner(HashModel{}, 64, 16, 256);
  FaultyBackend target(inner, fault);
  Result<SelfTestReport> report = self_test({&target, {}, 16, 64, 128, 256}, clock);
  return report.ok() ? "" : report.status().message();
}

TEST(SelfTest, PassesAndMeasuresWhatPassesCost) {
  for (int32_t block_tokens : {1, 4, 16, 64}) {
    Clock clock(1);
    int32_t n_blocks = 12 * 64 / block_tokens;
    HashBackend target(HashModel{}, n_blocks, block_tokens, 256);
    HashBackend draft(HashModel{}, n_blocks, block_tokens, 256);
    target.on_pass = [&](int32_t rows) { clock.advance_us(1000 + 10 * rows); };
    draft.on_pass = [&](int32_t) { clock.advance_us(100); };
    Result<SelfTestReport> report =
        self_test({&target, {&draft}, block_tokens, n_blocks, 128, 256}, clock);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_NEAR(report->target_step_seconds(), 1010e-6, 1e-9);
    ASSERT_EQ(report->draft_seconds.size(), 1u);
    EXPECT_NEAR(report->draft_seconds[0], 100e-6, 1e-9);
    EXPECT_GE(report->target_passes.back().n_rows, 64);
  }
}

// 19 tokens of a prompt, 6 behind it and a chain of 15 with its root; three sequences of 56 / 16
// blocks.
TEST(SelfTest, WhatIsTooSmallIsNoFailureAndNoPassEither) {
  Clock clock(1);
  HashBackend target(HashModel{}, 64, 16, 256);
  int32_t n_passes = 0;
  target.on_pass = [&](int32_t) { ++n_passes; };
  auto skipped = [&](int32_t n_blocks, int32_t max_rows, int64_t max_context) {
    n_passes = 0;
    Result<SelfTestReport> report =
        self_test({&target, {}, 16, n_blocks, max_rows, max_context}, clock);
    EXPECT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->skipped.empty(), n_passes > 0);
    return report->skipped;
  };
  EXPECT_EQ(skipped(8, 128, 256), "--kv-blocks 8 is less than the 9 that it needs");
  EXPECT_EQ(skipped(64, 34, 256), "--max-num-batched-tokens 34 is less than the 35 that it needs");
  EXPECT_EQ(skipped(64, 128, 40), "--max-model-len 40 is less than the 41 that it needs");
  EXPECT_EQ(skipped(9, 35, 41), "");
}

TEST(SelfTest, NamesWhatIsWrong) {
  auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_EQ(verdict([](auto, auto) {}), "");
  EXPECT_TRUE(contains(verdict([](auto jobs, auto results) {
                         if (jobs[0].input.tree->size() > 0) results[0].n_accepted = 0;
                       }),
                       "a draft that is the target is not kept"));
  EXPECT_TRUE(contains(
      verdict([](auto jobs, auto results) { results[0].n_accepted = jobs[0].input.tree->size(); }),
      "a wrong draft is not refused"));
  EXPECT_TRUE(contains(verdict([n = 0](auto jobs, auto results) mutable {
                         if (jobs[0].input.tree->size() > 0 && ++n == 3) results[0].n_accepted = 1;
                       }),
                       "a refused draft leaves something behind"));
  EXPECT_TRUE(contains(verdict([n = 0](auto jobs, auto results) mutable {
                         if (jobs[0].input.tree->size() > 0 && ++n == 4) results[0].tokens[0] += 1;
                       }),
                       "a prefix of another sequence"));
  EXPECT_TRUE(contains(verdict([](auto jobs, auto results) {
                         if (jobs.size() == 3) results[1].tokens[0] += 1;
                       }),
                       "neighbours in a batch"));
  EXPECT_TRUE(
      contains(verdict([](auto, auto results) { results[0].finite = false; }), "not finite"));
}

}  // namespace
}  // namespace pf
