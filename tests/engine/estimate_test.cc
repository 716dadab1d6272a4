// Truth: bytes and rates worked out by hand for Llama-3.1-8B in 16 bits and Llama-3.2-1B in 4.
#include "engine/estimate.h"

#include <gtest/gtest.h>

#include "engine/memory_plan.h"
#include "engine/open_models.h"

namespace pf {
namespace {

class Estimate : public testing::Test {
 protected:
  explicit Estimate(int32_t n_devices = 1) {
    options.tensor_parallel_size = n_devices;
    options.model = "llama-3.1-8b";
    options.drafts = {{"", "llama-3.2-1b"}};
    options.speculation = {"model"};
    options.dtype = "fp16";
    models = open_models(options, Device::kCuda, Content::kShapes).take();
    device = *find_device_model("h200");
    plan = plan_memory(options, {Device::kCuda, 1, device->free_bytes()}, models.residents(options))
               .take();
    estimator = std::make_unique<StepEstimator>(options, plan.residents, *device, shares);
  }

  EngineOptions options;
  OpenModels models;
  const DeviceModel* device = nullptr;
  MemoryPlan plan;
  RooflineShares shares;
  std::unique_ptr<StepEstimator> estimator;
};

TEST(ExpectedTokens, AreTheGeometricSum) {
  EXPECT_DOUBLE_EQ(expected_tokens(0.8, 0), 1);
  EXPECT_DOUBLE_EQ(expected_tokens(0.5, 2), 1 + 0.5 + 0.25);
  EXPECT_DOUBLE_EQ(expected_tokens(1, 4), 5);
}

double gb(int64_t bytes) { return 1e-9 * static_cast<double>(bytes); }

// A decoded token reads all matrices but the embedding: 2 x (6,979,321,856 in the layers + 128,256
// x 4,096 of the head) = 15.00932e9 bytes; and of 2,048 tokens 8 heads x 2 x 128 x 2 bytes in 32
// layers, 131,072 each: 0.26844e9. In a layer 8 parts of 32 heads x 520 bytes are written (they are
// folded where they lie, in the cache), 133,120, and the row goes in and out of kernels with
// 225,796 bytes (24,576 less in the last, which no norm follows): 0.01146e9. Around them 90,892; of
// the judge 20 bytes a logit, 2,589,700.
TEST_F(Estimate, ADecodedTokenReadsTheWeightsAndItsContextOnce) {
  const StepEstimate e = estimator->estimate({1, 2048, 0}, 0);
  EXPECT_NEAR(gb(e.target.bytes), 15.00932 + 0.26844 + 0.01146 + 0.00009 + 0.00259, 0.00005);
  EXPECT_EQ(e.draft.n_launches, 0);
  // 32 layers of 5 launches, 2 around them; of the judge gather, head, laws, accept.
  EXPECT_EQ(e.target.n_launches, 32 * 5 + 2 + 4);
  // Never below what the memory's peak allows.
  EXPECT_GT(e.target.seconds, 15.28e9 / 4800e9);
  EXPECT_LT(e.target.seconds, 2 * 15.28e9 / 4800e9);
}

// Four passes of the draft over 973,078,528 weights of its layers and 262,668,288 of its head in 5
// bits each (a scale and a minimum for 32): 3.08937e9 bytes; over 2,048, 2,049, 2,050 and 2,051
// tokens of 32,768 bytes: 0.26863e9; 8 and three times 9 parts of 32 heads x 264 bytes, written in
// 16 layers: 0.00473e9; the row in and out of kernels 1,905,100 bytes a pass: 0.00762e9;
// and its logits, written and read once: 4 x 8 x 128,256 = 0.0041e9. The lists of the likeliest 128
// of each slice of them are the rest, below 0.0012e9.
TEST_F(Estimate, AVerifiedChainReadsTheWeightsOnceMoreOnlyInTheDraft) {
  const StepEstimate plain = estimator->estimate({1, 2048, 0}, 0),
                     chain = estimator->estimate({1, 2048, 0}, 4);
  EXPECT_LT(static_cast<double>(chain.target.bytes),
            1.01 * static_cast<double>(plain.target.bytes));
  EXPECT_NEAR(gb(chain.draft.bytes), 3.08937 + 0.26863 + 0.00473 + 0.00762 + 0.0041 + 0.0006,
              0.0006);
  EXPECT_GT(chain.tokens_per_second({1, 2048, 0}, 0.9), plain.tokens_per_second({1, 2048, 0}, 0.9));
}

// Eight sequences of 2,048 blocks, 2,044 of them the same: 32,704 tokens are read once, and of each
// the last 64, not 8 x 32,768: 228,928 tokens of 131,072 bytes are not read. Apart, the 16 groups
// of 2,048 tokens of each are blocks of threads enough: 8 x 16 parts. In common they are not (16
// items x 8 KV heads of 264), so the units are splits of 256: 8 x 128 parts. A part has 32 heads x
// 520 bytes, written and read in 32 layers.
TEST_F(Estimate, APrefixInCommonIsReadOnceForAllSequences) {
  const int64_t own = estimator->estimate({8, 32768, 0}, 0).target.bytes,
                common = estimator->estimate({8, 32768, 32768 - 64}, 0).target.bytes;
  // All of the 32,704 tokens in common are read once: seven of eight copies x 131,072 bytes are
  // not. But what is read once is less work than fills the device, and so it is cut into splits:
  // 128 parts of each row in place of 16, of 32 heads in 32 layers, each 128 floats and a state of
  // two.
  EXPECT_EQ(own - common, 7 * int64_t{32704} * 131072 - 8 * (128 - 16) * 32 * 32 * (4 * 128 + 8));
}

// tinyllama's three passes: 968,884,224 weights of its layers and 65,536,000 of its head in 5 bits,
// 1.93954e9 bytes; 2,048, 2,049 and 2,050 tokens of 22 x 1,024 bytes, 0.13850e9; 26 parts of 32 x
// 264 in 22 layers, 0.00483e9; rows and logits, below 0.01e9.
TEST_F(Estimate, OfSeveralDraftsEachIsEstimated) {
  const Load load{1, 2048, 0};
  const int64_t large_alone = estimator->estimate(load, 3).draft.bytes;
  estimator.reset();  // it looks at the models
  options.drafts = {{"large", "llama-3.2-1b"}, {"small", "tinyllama-1.1b"}};
  models = open_models(options, Device::kCuda, Content::kShapes).take();
  plan = plan_memory(options, {Device::kCuda, 1, device->free_bytes()}, models.residents(options))
             .take();
  StepEstimator both(options, plan.residents, *device, shares);
  EXPECT_EQ(both.drafts(), (std::vector<std::string>{"draft model large", "draft model small"}));
  EXPECT_TRUE(both.not_estimated().empty());
  EXPECT_EQ(both.estimate(load, 3, 0).draft.bytes, large_alone);
  EXPECT_NEAR(gb(both.estimate(load, 3, 1).draft.bytes), 1.93954 + 0.13850 + 0.00483 + 0.005,
              0.005);
}

TEST_F(Estimate, OnlyTheTargetHasRoomToJudge) {
  EXPECT_TRUE(plan.residents[0].judges);
  EXPECT_FALSE(plan.residents[1].judges);
}

TEST_F(Estimate, ADraftOnTheCpuIsNotTakenForOneOnTheDevice) {
  estimator.reset();
  options.draft_device = "cpu";
  models = open_models(options, Device::kCuda, Content::kShapes).take();
  plan = plan_memory(options, {Device::kCuda, 1, device->free_bytes()}, models.residents(options))
             .take();
  StepEstimator plain(options, plan.residents, *device, shares);
  EXPECT_TRUE(plain.drafts().empty());
  EXPECT_EQ(plain.not_estimated(), std::vector<std::string>{"draft model on the CPU"});
}

// Three heads of 4,096 x 4,096 and 128,256 x 4,096 weights in 5 bits: 1.01646e9 bytes; three rows
// of logits, written and read: 0.00308e9; rows, blocks' sums and lists below 0.001e9.
TEST_F(Estimate, HeadsReadTheirMatricesOnce) {
  const Load load{1, 2048, 0};
  const StepEstimate heads = estimator->estimate_heads(load, 3),
                     chain = estimator->estimate(load, 3);
  EXPECT_NEAR(gb(heads.draft.bytes), 1.01646 + 0.00308 + 0.0005, 0.0005);
  EXPECT_EQ(heads.target.bytes, chain.target.bytes);
  EXPECT_EQ(heads.K, 3);
  EXPECT_GT(heads.draft.seconds, 1.0195e9 / 4800e9);
  EXPECT_LT(heads.draft.seconds, chain.draft.seconds);
  EXPECT_EQ(estimator->estimate_heads(load, 0).draft.flops, 0);
}

// 1,024 tokens in two chunks of 512: 2 FLOPs for each of 6,979,321,856 weights and
// token, 14.2937e12; 4 x 32 heads x 128 for each of 524,800 pairs of tokens in 32 layers,
// 0.2752e12; the head once. The weights are read twice. The draft's 973,078,528 weights come
// to 1.9929e12.
TEST_F(Estimate, APromptIsItsTokensTimesTheWeights) {
  const Work prompt = estimator->prompt(1024), draft = estimator->draft_prompt(1024);
  EXPECT_NEAR(1e-12 * prompt.flops, 14.2937 + 0.2752 + 0.0011, 0.02);
  EXPECT_GT(gb(prompt.bytes), 2 * 2 * 6.979321856);
  EXPECT_GT(prompt.seconds, prompt.flops / 989.4e12);
  EXPECT_NEAR(1e-12 * draft.flops, 1.9929 + 4 * 32 * 64 * 524800e-12 * 16, 0.01);
  EXPECT_GT(estimator->prompt(1025).n_launches, prompt.n_launches) << "a chunk more";
}

TEST_F(Estimate, DraftsPayLessTheMoreSequencesShareAStep) {
  double last = 1e9;
  for (int32_t n : {1, 8, 64}) {
    const Load load{n, 2048, 0};
    const double gain = estimator->estimate(load, 3).tokens_per_second(load, 0.8) /
                        estimator->estimate(load, 0).tokens_per_second(load, 0);
    EXPECT_LT(gain, last);
    last = gain;
  }
}

// 40 sequences with 10 drafted tokens have 440 logit rows, and the head has room for 64 x 11, of
// which 512 at most. Where one sequence was foreseen it has room for 65: eight times the gather,
// the head, the laws and the accept rule (5 sequences of 11 rows at once), and 7 times the head's
// 525,336,576 weights of 2 bytes more.
TEST_F(Estimate, AStepReadsTheHeadOnceForAllSequencesThatWereForeseen) {
  const Load load{40, 2048, 0};
  const StepEstimate foreseen = estimator->estimate(load, 10);
  for (ResidentModel& r : plan.residents) r.head_rows = 11;
  StepEstimator not_foreseen(options, plan.residents, *device, shares);
  const StepEstimate e = not_foreseen.estimate(load, 10);
  EXPECT_EQ(e.target.n_launches - foreseen.target.n_launches, 7 * 4);
  EXPECT_EQ(e.target.bytes - foreseen.target.bytes, 7 * int64_t{525'336'576} * 2);
}

class EstimateOfTwo : public Estimate {
 protected:
  EstimateOfTwo() : Estimate(2) {}
};

// Each device reads half of the layers' 6,979,321,856 weights and of the head's 525,336,576, 2
// bytes each, and of the keys and values: 2,048 x 65,536 bytes. In a layer 8 parts of 16 heads x
// 520 bytes are written, 66,560, and the row and its shares go in and out of kernels with 309,764
// (40,960 less in the last): 0.01200e9; around them 90,892; of the judge 2,333,188. The
// shares of 4,096 sums are exchanged twice in each of 32 layers, and half of 128,256 logits once.
TEST_F(EstimateOfTwo, EachReadsItsHalfAndExchangesItsShares) {
  const StepEstimate e = estimator->estimate({1, 2048, 0}, 0),
                     chain = estimator->estimate({1, 2048, 0}, 4);
  EXPECT_NEAR(gb(e.target.bytes), 6.97932 + 0.52534 + 0.13422 + 0.01200 + 0.00009 + 0.00233,
              0.0001);
  // In a layer the four products, attention, two sums and two norms, of which the last layer has
  // one; two around them; four of the judge.
  EXPECT_EQ(e.target.n_launches, 32 * 9 - 1 + 2 + 4);
  EXPECT_EQ(e.target.n_exchanges, 64 + 1);
  EXPECT_EQ(e.target.exchanged_bytes, 64 * 4096 * 4 + 128256 / 2 * 4);
  EXPECT_GT(e.target.seconds,
            7.65e9 / 4800e9 + 65 * 1e-6 * device->exchange_us);  // one behind the other
  EXPECT_EQ(chain.draft.n_exchanges, 0);
}

}  // namespace
}  // namespace pf
