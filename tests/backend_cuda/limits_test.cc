// Truth: hand-worked numbers: what a device is refused for, and what memory is taken and given
// back.
#include "backend/cuda/limits.h"

#include "backend_cuda/cuda_rig.h"
#include "engine/device.h"

namespace pf {
namespace {

// 128 rows, each behind 131,072 tokens of its own and in 65 groups of 2,048, are planned at once:
// 128 x 65 parts. With fewer, all of them would be launched one by one.
TEST(AttentionParts, HoldEveryPassThatGoesAsAGraph) {
  CudaOptions o;
  o.max_context = 131072;
  EXPECT_EQ(n_attention_parts(o), 128 * 65);
  std::vector<std::vector<int32_t>> tables;
  std::vector<kernels::AttentionSegment> segments;
  std::vector<int32_t> positions, visible;
  for (int32_t s = 0; s < 128; ++s) {
    tables.emplace_back(8197, s);  // of 16 tokens, past the longest context
    positions.push_back(131072);
    visible.push_back(131073);
  }
  for (int32_t s = 0; s < 128; ++s) segments.push_back({s, 1, tables[static_cast<size_t>(s)]});
  const std::vector<uint64_t> masks(128);
  kernels::AttentionPlan plan({32, 8, 16, 0, n_attention_parts(o), 264});
  EXPECT_EQ(plan.build({positions, visible, masks, segments}, 0), 128);
  EXPECT_EQ(plan.n_parts(), 128 * 65);

  o.max_rows = 64;  // passes have no more
  o.head_chunk_rows = 64;
  EXPECT_EQ(n_attention_parts(o), 64 * 65);
  o.max_context = 2048;  // 2 groups
  EXPECT_EQ(n_attention_parts(o), 1024);
  o.max_context = 1 << 20;  // 513 groups
  o.max_rows = 512;
  EXPECT_EQ(n_attention_parts(o), kMostGraphParts);
  o.graphs = false;
  EXPECT_EQ(n_attention_parts(o), 1024);
}

// A terabyte of KV, which no device has.
TEST(CudaMemory, WantOfItIsAStatusAndGivesBackWhatWasTaken) {
  const Model model = bf16_model(cuda_shape());
  ThreadPool pool(1);
  CudaOptions o;
  o.block_tokens = 8;
  o.max_context = 1024;
  o.n_blocks = 1 << 27;
  const int64_t before = ptxvm::on_machine() ? cuda_free_bytes() : 0;
  const Result<std::unique_ptr<Backend>> refused = make_cuda_backend(model, nullptr, o, pool);
  ASSERT_FALSE(refused.ok());
  // 2 layers x 2 x 2 heads x 64 numbers of 2 bytes for each of 2^30 tokens.
  EXPECT_NE(refused.status().message().find("has no 1048577 MB more to give"), std::string::npos)
      << refused.status().message();
  EXPECT_NE(refused.status().message().find("lower --gpu-memory-utilization"), std::string::npos);
  if (ptxvm::on_machine()) {
    EXPECT_EQ(cuda_free_bytes(), before);
  }
  o.n_blocks = 20;
  EXPECT_TRUE(make_cuda_backend(model, nullptr, o, pool).ok());
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

// A Turing card.
TEST(CudaCapability, AnOlderDeviceIsLeftAloneWithAWarningOrRefused) {
  EngineOptions o;
  EXPECT_EQ(*choose_device(o), Device::kCuda);
  EXPECT_EQ(device_warning(o), "");
  const ptxvm::Device device = ptxvm::settings().device;
  ptxvm::settings().device.major = 7;
  ptxvm::settings().device.minor = 5;
  const std::string why =
      "CUDA device 0 (ptxvm sm_80) has compute capability 7.5, the kernels need 8.0 or later "
      "(CUDA_VISIBLE_DEVICES chooses among several)";
  EXPECT_EQ(*choose_device(o), Device::kCpu);
  EXPECT_EQ(device_warning(o), "--device auto: " + why + "; computing on the CPU");
  o.device = "cuda";
  EXPECT_EQ(choose_device(o).status().message(), "--device cuda: " + why + "; use --device cpu");
  EXPECT_EQ(device_warning(o), "");
  o.device = "cpu";
  EXPECT_EQ(*choose_device(o), Device::kCpu);
  EXPECT_EQ(device_warning(o), "");
  ptxvm::settings().device = device;
}

}  // namespace
}  // namespace pf
