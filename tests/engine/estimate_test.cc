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

// A decoded token reads all matrices but the embedding: 2 x (8.03e9 - 128256 x 4096) = 15.01e9
// bytes, and of 2,048 tokens of context 131,072 bytes each, 0.27e9.
TEST_F(Estimate, ADecodedTokenReadsTheWeightsAndItsContextOnce) {
  const StepEstimate e = estimator->estimate({1, 2048, 0}, 0);
  EXPECT_NEAR(1e-9 * static_cast<double>(e.target.bytes), 15.01 + 0.27, 0.03);
  EXPECT_EQ(e.draft.n_launches, 0);
  // 32 layers of 5 launches, 2 around them; of the judge gather, head, laws, accept.
  EXPECT_EQ(e.target.n_launches, 32 * 5 + 2 + 4);
  // Never below what the memory's peak allows.
  EXPECT_GT(e.target.seconds, 15.28e9 / 4800e9);
  EXPECT_LT(e.target.seconds, 2 * 15.28e9 / 4800e9);
}

TEST_F(Estimate, AVerifiedChainReadsTheWeightsOnceMoreOnlyInTheDraft) {
  const StepEstimate plain = estimator->estimate({1, 2048, 0}, 0),
                     chain = estimator->estimate({1, 2048, 0}, 4);
  EXPECT_LT(static_cast<double>(chain.target.bytes),
            1.01 * static_cast<double>(plain.target.bytes));
  // Four passes over 0.97e9 weights of the layers and 0.26e9 of the head in 5 bits each, and the
  // contexts: 32,768 bytes a token.
  EXPECT_NEAR(1e-9 * static_cast<double>(chain.draft.bytes), 4 * (1.236 * 0.625 + 0.067), 0.1);
  EXPECT_GT(chain.tokens_per_second({1, 2048, 0}, 0.9), plain.tokens_per_second({1, 2048, 0}, 0.9));
}

TEST_F(Estimate, APrefixInCommonIsReadOnceForAllSequences) {
  const int64_t own = estimator->estimate({8, 32768, 0}, 0).target.bytes,
                common = estimator->estimate({8, 32768, 32768 - 64}, 0).target.bytes;
  // All of the 32,704 tokens in common are read once: seven of eight copies x 131,072 bytes are
  // not. But what is read once is less work than fills the device, and so it is cut into splits:
  // 128 parts of each row in place of 16, of 32 heads in 32 layers, each 128 floats and a state of
  // two.
  EXPECT_EQ(own - common, 7 * int64_t{32704} * 131072 - 8 * (128 - 16) * 32 * 32 * (4 * 128 + 8));
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

class EstimateOfTwo : public Estimate {
 protected:
  EstimateOfTwo() : Estimate(2) {}
};

// Each device reads half of the layers' 6.98e9 weights, of the head and of the keys and values. The
// shares of 4,096 sums are exchanged twice in each of 32 layers, and half of 128,256 logits once.
TEST_F(EstimateOfTwo, EachReadsItsHalfAndExchangesItsShares) {
  const StepEstimate e = estimator->estimate({1, 2048, 0}, 0),
                     chain = estimator->estimate({1, 2048, 0}, 4);
  EXPECT_NEAR(1e-9 * static_cast<double>(e.target.bytes), 6.979 + 0.525 + 0.134, 0.03);
  // In a layer the four products, attention, two sums and two norms, of which the last layer has
  // one; two around them; four of the judge.
  EXPECT_EQ(e.target.n_launches, 32 * 9 - 1 + 2 + 4);
  EXPECT_EQ(e.target.n_exchanges, 64 + 1);
  EXPECT_EQ(e.target.exchanged_bytes, 64 * 4096 * 4 + 128256 / 2 * 4);
  EXPECT_GT(e.target.seconds,
            7.63e9 / 4800e9 + 65 * 1e-6 * device->exchange_us);  // one behind the other
  EXPECT_EQ(chain.draft.n_exchanges, 0);
}

}  // namespace
}  // namespace pf
