// Truth: the table of --dtype by device and by the type of the file's matrices (device.h).
#include "engine/device.h"

#include <gtest/gtest.h>

#include "engine/memory_plan.h"
#include "engine/open_models.h"

namespace pf {
namespace {

std::string on(Device device, TensorType file, const std::string& dtype = "auto") {
  EngineOptions o;
  o.dtype = dtype;
  Model m;
  m.layers.resize(1);
  m.layers[0].q.type = file;
  return numbers_of(o, device, m);
}

TEST(Numbers, AutoKeepsA16BitFileAsItIs) {
  EXPECT_EQ(on(Device::kCuda, TensorType::kF16), "fp16");
  EXPECT_EQ(on(Device::kCuda, TensorType::kBF16), "bf16");
  EXPECT_EQ(on(Device::kCuda, TensorType::kF32), "bf16");
  EXPECT_EQ(on(Device::kCuda, TensorType::kQ4_1), "bf16");
  EXPECT_EQ(on(Device::kCuda, TensorType::kBF16, "fp16"), "fp16");
  EXPECT_EQ(on(Device::kCuda, TensorType::kF16, "bf16"), "bf16");
  EXPECT_EQ(on(Device::kCpu, TensorType::kF16), "bf16");
  EXPECT_EQ(on(Device::kCpu, TensorType::kF16, "fp32"), "fp32");
}

// The shapes known by name are those of files in fp16: 16 bits a weight of the target, and an int4
// draft that computes in the numbers of its own file.
TEST(Numbers, ReachTheMemoryPlanAndTheBackend) {
  EngineOptions o;
  o.model = "llama-3.1-8b";
  o.drafts = {{"", "llama-3.2-1b"}};
  o.speculation = {"model"};
  const OpenModels models = open_models(o, Device::kCuda, Content::kShapes).take();
  const MemoryPlan plan =
      plan_memory(o, {Device::kCuda, 1, int64_t{80} << 30}, models.residents(o)).take();
  EXPECT_EQ(plan.parts[0].name, "weights of the target (fp16)");
  EXPECT_EQ(plan.residents[1].weights, "int4");
  for (const ResidentModel& r : plan.residents)
    EXPECT_EQ(cuda_options(o, r).numbers, CudaOptions::Numbers::kF16);
  o.dtype = "bf16";
  const auto residents = models.residents(o);
  EXPECT_EQ(residents[0].weights, "bf16");
  for (const ResidentModel& r : residents)
    EXPECT_EQ(cuda_options(o, r).numbers, CudaOptions::Numbers::kBf16);
}

}  // namespace
}  // namespace pf
