// Truth: memory worked out by hand for a 128K context on an A100 80GB (the article's case).
#include "cli/plan.h"

#include <gtest/gtest.h>

#include "engine/open_models.h"

namespace pf {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

struct Planned {
  OpenModels models;
  MemoryPlan plan;
};

std::unique_ptr<Planned> plan_for(const std::string& draft) {
  EngineOptions o;
  o.model = "llama-3.1-8b";
  o.drafts = {{"", draft}};
  o.speculation = {"model"};
  o.dtype = "fp16";
  o.max_prefix_len = 131072;
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
// 0.72 + its KV 2.75 (22 layers x 4 heads x 64, 22 KiB a token) = 34.43 GiB, a third of a GiB of
// scratch and graphs, and what the article's draft did without: windows onto longer texts than its
// 2,048 tokens, 16 x 2,048 x 22 KiB = 0.69. The second is no whole number of copies: it lies
// between two (54.2) and three (72.9) of the context's KV.
TEST(Plan, A128KContextTakesTheArticles34GibSharedAnd58BetweenTwoAndThreeCopies) {
  auto p = plan_for("tinyllama-1.1b");
  const MemoryPlan& plan = p->plan;
  EXPECT_EQ(plan.max_context, 131072);
  EXPECT_EQ(plan.kv_bytes_per_token, (128 + 22) * 1024);
  const double shared = static_cast<double>(bytes_with_copies(plan, 16, 1)) / kGib;
  EXPECT_NEAR(shared, 34.43 + 0.3 + 0.69, 0.1);
  EXPECT_LT(static_cast<double>(bytes_with_copies(plan, 16, 2)) / kGib, 58);
  EXPECT_GT(static_cast<double>(bytes_with_copies(plan, 16, 3)) / kGib, 58);
  // Three quarters of the memory, 59.1 GiB, hold two such sequences, or six whose first 96K tokens
  // are the same: 43.1 GiB of KV; 14.1 for the prefix and 4.7 for the rest of each.
  EXPECT_EQ(n_sequences_that_fit(plan, 16, 0), 2);
  EXPECT_EQ(n_sequences_that_fit(plan, 16, 98304), 6);
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

}  // namespace
}  // namespace pf
