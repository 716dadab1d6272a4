// Truth: what the backends say that they took (BackendInfo), and memory worked out by hand.
#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/tiny_head.h"

namespace pf {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

ResidentModel resident_of(const Model& model, const std::string& weights) {
  ResidentModel r;
  r.name = "target";
  r.model = &model;
  r.weights = weights;
  r.max_rows = 40;
  return r;
}

EngineOptions options(const std::string& quantization, const std::string& dtype) {
  EngineOptions o;
  o.device = "cpu";
  o.quantization = quantization;
  o.dtype = dtype;
  o.max_num_seqs = 3;
  o.max_num_batched_tokens = 40;
  return o;
}

TEST(MemoryPlan, IsWhatTheCpuBackendTakes) {
  ThreadPool pool(2);
  const TinyShape shape = {.width = 64, .ffn = 96, .heads = 4, .head_width = 32, .bias = true};
  const Model model = tiny_model(shape);
  for (const auto& [quantization, dtype, weights] :
       {std::tuple("none", "auto", "bf16"), std::tuple("none", "fp32", "fp32"),
        std::tuple("int8", "auto", "int8"), std::tuple("int4", "auto", "int4")})
    for (const auto& [keeps, kv] : {std::pair(false, "auto"), std::pair(true, "int8")}) {
      SCOPED_TRACE(weights);
      ResidentModel r = resident_of(model, weights);
      r.keep_hidden = keeps;
      EngineOptions o = options(quantization, dtype);
      o.kv_cache_dtype = kv;
      Result<MemoryPlan> plan = plan_memory(o, {Device::kCpu, pool.size(), kGib}, {r});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      auto backend = make_backend(Device::kCpu, o, plan->residents[0], pool);
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      const BackendInfo& info = (*backend)->info();
      ASSERT_EQ(plan->parts.size(), 3u);
      EXPECT_EQ(plan->parts[0].bytes, info.weight_bytes);
      EXPECT_EQ(plan->parts[1].bytes, info.scratch_bytes);
      EXPECT_EQ(plan->parts[2].bytes, info.kv_bytes);
      EXPECT_EQ(plan->kv_bytes_per_token * plan->n_blocks * o.block_size, info.kv_bytes);
    }
}

// Two bytes for each number of the makers' counts without the norms, a tied embedding once:
// 1,100,048,384 - 45 x 2,048 of TinyLlama, 134,515,008 - 61 x 576 of SmolLM2.
TEST(MemoryPlan, AModelOfShapesHasItsEmbeddingOnceWhereTheHeadIsTiedAndOnlyThere) {
  for (const auto& [name, bytes] : {std::pair("tinyllama-1.1b", int64_t{2'199'912'448}),
                                    std::pair("smollm2-135m", int64_t{268'959'744})}) {
    const Model model = known_shape(name).take();
    EngineOptions o = options("none", "auto");
    o.max_model_len = 64;
    Result<MemoryPlan> plan =
        plan_memory(o, {Device::kCpu, 1, 8 * kGib}, {resident_of(model, "bf16")});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->parts[0].bytes, bytes) << name;
  }
}

TEST(MemoryPlan, IsWhatAHeadAndItsTargetTakeOnTheCpu) {
  ThreadPool pool(2);
  const TinyShape shape = {.width = 64, .ffn = 96, .heads = 4, .head_width = 32};
  const Model target = tiny_model(shape);
  const EngineOptions o = options("none", "auto");
  for (const TinyHead& kind : {TinyHead{.kind = HeadKind::kEagle, .bare = true},
                               TinyHead{.kind = HeadKind::kEagle, .every = 3},
                               TinyHead{.kind = HeadKind::kEagle3, .n_states = 3, .every = 2}})
    for (const char* weights : {"bf16", "int4"}) {
      SCOPED_TRACE(weights);
      const Model head = tiny_head(shape, kind);
      ResidentModel over = resident_of(target, "bf16"), drafts = resident_of(head, weights);
      drafts.embedding_of = &target;
      over.keep_hidden = true;
      if (kind.kind == HeadKind::kEagle3) over.tap_layers = {0, 1, 2};
      Result<MemoryPlan> plan = plan_memory(o, {Device::kCpu, pool.size(), kGib}, {over, drafts});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      auto first = make_backend(Device::kCpu, o, plan->residents[0], pool);
      ASSERT_TRUE(first.ok()) << first.status().message();
      plan->residents[1].hidden_of = (*first)->hidden_states();
      auto second = make_backend(Device::kCpu, o, plan->residents[1], pool);
      ASSERT_TRUE(second.ok()) << second.status().message();
      const BackendInfo &a = (*first)->info(), &b = (*second)->info();
      std::vector<int64_t> planned;
      for (const MemoryPlan::Part& part : plan->parts) planned.push_back(part.bytes);
      EXPECT_EQ(planned, (std::vector<int64_t>{a.weight_bytes, a.scratch_bytes, b.weight_bytes,
                                               b.scratch_bytes, a.kv_bytes, b.kv_bytes}));
    }
}

TEST(MemoryPlan, TakesAsManyBlocksAsSequencesNeedOrMemoryHas) {
  const Model model = tiny_model({});
  EngineOptions o = options("none", "auto");
  o.max_model_len = 1000;
  o.memory_utilization = 0.5;
  ResidentModel r = resident_of(model, "bf16");
  Result<MemoryPlan> plan = plan_memory(o, {Device::kCpu, 1, kGib}, {r});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->blocks_per_sequence, (1000 + 64) / 16 + 1);
  EXPECT_EQ(plan->n_blocks, 3 * 67);
  EXPECT_EQ(plan->budget_bytes, kGib / 2);
  EXPECT_EQ(plan->kv_bytes_per_token, 2 * 2 * 2 * 16 * 2);  // L, K and V, G, D, bytes
  const int64_t fixed = plan->parts[0].bytes + plan->parts[1].bytes;
  EXPECT_EQ(plan->affordable_blocks, (kGib / 2 - fixed) / (plan->kv_bytes_per_token * 16));
  EXPECT_EQ(plan->largest_context, (plan->affordable_blocks - 1) * 16 - 64);
  // Memory for 100 blocks: one sequence fits, three do not.
  const int64_t little = 2 * (fixed + 100 * plan->kv_bytes_per_token * 16);
  Result<MemoryPlan> tight = plan_memory(o, {Device::kCpu, 1, little}, {r});
  ASSERT_TRUE(tight.ok()) << tight.status().message();
  EXPECT_EQ(tight->n_blocks, 100);
}

TEST(MemoryPlan, WhatCannotHoldOneSequenceIsRefusedWithTheContextThatFits) {
  const Model model = tiny_model({});
  EngineOptions o = options("none", "auto");
  o.memory_utilization = 0.5;
  ResidentModel r = resident_of(model, "bf16");
  Result<MemoryPlan> ample = plan_memory(o, {Device::kCpu, 1, kGib}, {r});
  ASSERT_TRUE(ample.ok()) << ample.status().message();
  // The model's 4,096 tokens need 261 blocks; 100 hold 100 x 16 - 1 - 64 = 1,535, and more where
  // scratch is smaller for a shorter context.
  const int64_t little =
      2 * (ample->parts[0].bytes + ample->parts[1].bytes + 100 * ample->kv_bytes_per_token * 16);
  Result<MemoryPlan> plan = plan_memory(o, {Device::kCpu, 1, little}, {r});
  ASSERT_FALSE(plan.ok());
  const std::string said = plan.status().message();
  size_t at = said.find("set --max-model-len to ");
  ASSERT_NE(at, std::string::npos) << said;
  o.max_model_len = std::stoi(said.substr(at + 23));
  EXPECT_GE(o.max_model_len, 1535);
  EXPECT_TRUE(plan_memory(o, {Device::kCpu, 1, little}, {r}).ok());
  ++o.max_model_len;
  EXPECT_FALSE(plan_memory(o, {Device::kCpu, 1, little}, {r}).ok());
}

// A model whose KV of one sequence has 261 blocks of 4,096 bytes, with 1 GiB free.
struct Shortage : testing::Test {
  Shortage() : model(tiny_model({})), resident(resident_of(model, "bf16")) {}
  std::string refusal() {
    resident.max_rows = o.max_num_batched_tokens;
    Result<MemoryPlan> plan = plan_memory(o, {Device::kCpu, 1, free_bytes}, {resident});
    return plan.ok() ? "" : plan.status().message();
  }
  // What the advice says to do, done.
  void expect_cured() { EXPECT_EQ(refusal(), ""); }

  const Model model;
  ResidentModel resident;
  EngineOptions o = options("none", "auto");
  int64_t free_bytes = kGib;
};

// It said "set --max-model-len to 0 or less".
TEST_F(Shortage, TooFewBlocksAskForMoreOfThem) {
  o.kv_blocks = 1;
  EXPECT_EQ(refusal(),
            "one sequence of 4096 tokens needs 261 KV blocks, more than --kv-blocks 1: set "
            "--kv-blocks to 261 or more");
  o.kv_blocks = 100;
  EXPECT_EQ(refusal(),
            "one sequence of 4096 tokens needs 261 KV blocks, more than --kv-blocks 100: set "
            "--max-model-len to 1535 or less, or --kv-blocks to 261 or more");
  o.max_model_len = 1535;  // (1,535 + 64) / 16 + 1 = 100
  expect_cured();
  o.max_model_len = 1536;
  EXPECT_NE(refusal(), "");
}

TEST_F(Shortage, TooManyBlocksAreCountedAsTheyWereAsked) {
  o.kv_blocks = 2'000'000'000;
  EXPECT_THAT(refusal(), testing::HasSubstr("--kv-blocks 2000000000 needs 7812500 MB"));
  EXPECT_THAT(refusal(), testing::HasSubstr("set --kv-blocks to "));
  free_bytes = int64_t{1} << 50;
  EXPECT_EQ(refusal(), "--kv-blocks 2000000000: at most 134217727 of --block-size 16");
}

TEST_F(Shortage, AShareThatIsTooSmallIsNamed) {
  free_bytes = int64_t{16} << 20;
  o.memory_utilization = 0.01;
  const std::string said = refusal();
  EXPECT_THAT(said, testing::HasSubstr("--gpu-memory-utilization 0.01 allows of 16 MB free: set"));
  size_t at = said.find("--gpu-memory-utilization to ");
  ASSERT_NE(at, std::string::npos) << said;
  o.memory_utilization = std::stod(said.substr(at + 28));
  expect_cured();
  o.memory_utilization -= 0.01;
  EXPECT_NE(refusal(), "");
}

TEST_F(Shortage, TooManyRowsAreNamed) {
  o.max_num_batched_tokens = 1 << 20;
  free_bytes = kGib / 8;
  const std::string said = refusal();
  EXPECT_THAT(said, testing::StartsWith("weights and scratch take "));
  size_t at = said.find("--max-num-batched-tokens to ");
  ASSERT_NE(at, std::string::npos) << said;
  o.max_num_batched_tokens = std::stoi(said.substr(at + 28));
  expect_cured();
  ++o.max_num_batched_tokens;
  EXPECT_NE(refusal(), "");
}

TEST_F(Shortage, WhereNoFlagHelpsThatIsSaid) {
  free_bytes = 1000;
  EXPECT_THAT(refusal(), testing::HasSubstr(" MB more than the 0 MB that"));
  EXPECT_THAT(refusal(), testing::HasSubstr("; no flag makes room alone: take a smaller model"));
  EXPECT_EQ(refusal().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace pf
