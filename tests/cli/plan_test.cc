// Truth: memory worked out by hand for a 128K context on an A100 80GB (the article's case).
#include "cli/plan.h"

#include <gtest/gtest.h>

#include "cli/start_notes.h"
#include "engine/open_models.h"

namespace pf {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

struct Planned {
  OpenModels models;
  MemoryPlan plan;
};

std::unique_ptr<Planned> plan_for(const std::string& draft, int32_t n_devices = 1) {
  EngineOptions o;
  o.model = "llama-3.1-8b";
  o.drafts = {{"", draft}};
  o.speculation = {"model"};
  o.dtype = "fp16";
  o.max_prefix_len = 131072;
  o.tensor_parallel_size = n_devices;
  auto out = std::make_unique<Planned>();
  Result<OpenModels> models = open_models(o, Device::kCuda, Content::kShapes);
  EXPECT_TRUE(models.ok()) << models.status().message();
  out->models = models.take();
  int64_t bytes = (*find_device_model("a100-80"))->free_bytes();
  Result<MemoryPlan> plan = plan_memory(o, {Device::kCuda, 1, bytes}, out->models.residents(o));
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  out->plan = plan.take();
  return out;
}

// The article: 128K tokens take 34 GB where candidates share the prefix, and 58 GB where they do
// not. The first is target weights 14.96 + its KV 16.0 (131,072 tokens x 128 KiB) + draft weights
// 0.72 + its KV 2.75 (22 layers x 4 heads x 64, 22 KiB a token) = 34.43 GiB, a quarter of a GiB of
// scratch and graphs, 0.21 of the logits of 447 rows more than a tree has (full drafts of all
// sequences, 512 rows at most: 447 x 128,256 floats), 0.19 of attention's parts (8,320 x 32 heads x
// (130 + 66) floats), and what the article's draft did without: windows onto longer texts than its
// 2,048 tokens, 16 x 2,048 x 22 KiB = 0.69. The second is no whole number of copies: it lies
// between two (54.2) and three (72.9) of the context's KV.
TEST(Plan, A128KContextTakesTheArticles34GibSharedAnd58BetweenTwoAndThreeCopies) {
  auto p = plan_for("tinyllama-1.1b");
  const MemoryPlan& plan = p->plan;
  EXPECT_EQ(plan.max_context, 131072);
  EXPECT_EQ(plan.kv_bytes_per_token, (128 + 22) * 1024);
  const double shared = static_cast<double>(bytes_with_copies(plan, 16, 1)) / kGib;
  EXPECT_NEAR(shared, 34.43 + 0.25 + 0.21 + 0.19 + 0.69, 0.1);
  EXPECT_LT(static_cast<double>(bytes_with_copies(plan, 16, 2)) / kGib, 58);
  EXPECT_GT(static_cast<double>(bytes_with_copies(plan, 16, 3)) / kGib, 58);
  // Three quarters of the memory, 58.95 GiB, hold two such sequences, or five whose first 96K
  // tokens are the same, and nearly six: 42.0 GiB of KV; 14.06 for the prefix and 4.70 for the rest
  // of each.
  EXPECT_EQ(n_sequences_that_fit(plan, 16, 0), 2);
  EXPECT_EQ(n_sequences_that_fit(plan, 16, 98304), 5);
}

TEST(Plan, PartsAreThoseOfTheModels) {
  auto p = plan_for("llama-3.2-1b");
  const MemoryPlan& plan = p->plan;
  ASSERT_EQ(plan.parts.size(), 8u);
  // 8.03e9 weights in 16 bits, the norms (266,240) in 32, 64 floats of RoPE.
  EXPECT_EQ(plan.parts[0].bytes, 2 * 8'030'261'248 + 2 * 266'240 + 4 * 64);
  EXPECT_EQ(plan.parts[6].bytes, plan.n_blocks * int64_t{16} * 131072);
  EXPECT_EQ(plan.parts[7].bytes, plan.n_blocks * int64_t{16} * 32768);
  nlohmann::json json = to_json(plan);
  EXPECT_EQ(json["parts"].size(), 8u);
  EXPECT_EQ(json["total_bytes"].get<int64_t>(), plan.total_bytes());
}

// Two devices: of 6.98e9 weights of the layers and 0.525e9 of the head each has a half, the
// embedding (0.525e9), norms and RoPE whole; of 8 KV heads 4. The draft is on the first alone.
TEST(Plan, TwoDevicesHaveHalfOfTheTargetEach) {
  auto p = plan_for("llama-3.2-1b", 2), one = plan_for("llama-3.2-1b");
  const MemoryPlan& plan = p->plan;
  ASSERT_EQ(plan.parts.size(), 8u);  // no graphs of the target
  EXPECT_EQ(plan.parts[0].bytes,
            2 * (6'979'321'856 / 2 + 525'336'576 / 2 + 525'336'576) + 4 * 266'240 + 4 * 64);
  EXPECT_EQ(plan.parts[2].name, "set aside for NCCL");
  EXPECT_EQ(plan.parts[3].bytes, one->plan.parts[3].bytes);  // the draft's weights
  EXPECT_EQ(plan.parts[6].bytes, plan.n_blocks * int64_t{16} * 65536);
  EXPECT_EQ(plan.parts[7].bytes, plan.n_blocks * int64_t{16} * 32768);
  EXPECT_EQ(plan.kv_bytes_per_token, 65536 + 32768);
  int64_t draft = plan.parts[7].bytes;
  for (size_t i : {3u, 4u, 5u}) draft += plan.parts[i].bytes;
  // The first judges, besides: 512 rows of 128,256 logits, put together, the residuals of 64
  // sequences, and below 1 MiB of what the rule says.
  EXPECT_GT(plan.total_bytes() - draft, plan.other_device_bytes);
  EXPECT_NEAR(static_cast<double>(plan.total_bytes() - draft - plan.other_device_bytes),
              (512.0 + 64) * 128256 * 4, 1 << 20);
  EXPECT_EQ(to_json(plan)["devices"], 2);
  EXPECT_EQ(to_json(plan)["other_device_bytes"], plan.other_device_bytes);
  EXPECT_EQ(to_json(one->plan).count("devices"), 0u);
}

TEST(StartNotes, SayWhatSeveralDevicesAndALibraryCost) {
  EngineOptions o;
  EXPECT_TRUE(start_notes(o).empty());
  o.tensor_parallel_size = 2;
  ASSERT_EQ(start_notes(o).size(), 1u);
  EXPECT_EQ(start_notes(o)[0].find("--tensor-parallel-size 2: CUDA graphs are not used"), 0u);
  o.cuda_graphs = false;  // as asked
  EXPECT_TRUE(start_notes(o).empty());
  o.prefill_gemm = "cublas";
  ASSERT_EQ(start_notes(o).size(), 1u);
  EXPECT_EQ(start_notes(o)[0].find("--prefill-gemm cublas: "), 0u);
}

// Heads and first layers are not run at the start: their bytes speak for them. N-grams cost
// nothing.
TEST(StartNotes, WarnOfEveryDraftThatIsDear) {
  auto drafter = [](const char* name, float by_bytes) {
    DrafterDescription d;
    d.name = name;
    d.step_cost_ratio = by_bytes;
    return d;
  };
  const std::vector<DrafterDescription> drafters = {
      drafter("ngram", 0),     drafter("early-exit", 0.4f), drafter("eagle", 0.05f),
      drafter("medusa", 0.2f), drafter("model", 0.05f),     drafter("other", 0.05f)};
  const std::vector<DraftCost> costs = draft_costs(drafters, {0, 0, 0, 0, 0.35, 0.1});
  ASSERT_EQ(costs.size(), 5u);
  auto says = [&](size_t i, const char* part) {
    return costs[i].warning.find(part) != std::string::npos;
  };
  EXPECT_EQ(costs[0].drafter, "early-exit");
  EXPECT_TRUE(says(0, "30 %")) << costs[0].warning;
  EXPECT_FALSE(costs[0].measured);
  EXPECT_EQ(costs[1].warning, "") << "eagle is cheap";
  EXPECT_TRUE(says(2, "10 %")) << costs[2].warning;
  EXPECT_TRUE(says(3, "30 %")) << "what was measured counts, whatever the bytes say";
  EXPECT_TRUE(costs[3].measured);
  EXPECT_EQ(costs[4].warning, "") << "10 % is not over it";
}

TEST(Plan, RefusesWhatDevicesCannotShare) {
  EngineOptions o;
  o.model = "llama-3.1-8b";
  auto message = [&](Device device) {
    Result<OpenModels> models = open_models(o, device, Content::kShapes);
    return models.ok() ? "" : models.status().message();
  };
  o.tensor_parallel_size = 5;
  EXPECT_EQ(message(Device::kCuda),
            "llama-3.1-8b: --tensor-parallel-size 5: 32 attention heads do not divide by it; "
            "possible for this model: 1, 2, 4, 8, 16, 32");
  o.tensor_parallel_size = 2;
  o.speculation = {"early-exit"};
  o.draft_layers = 4;
  EXPECT_NE(message(Device::kCuda).find("has no early exit"), std::string::npos);
  EXPECT_EQ(check_formats(o, Device::kCpu).message(),
            "--tensor-parallel-size 2: a model is shared by CUDA devices; on the CPU set "
            "--threads");
  o.prefill_gemm = "cublas";
  EXPECT_EQ(check_formats(o, Device::kCuda).message(),
            "--prefill-gemm cublas serves one device; use own with --tensor-parallel-size");
}

}  // namespace
}  // namespace pf
