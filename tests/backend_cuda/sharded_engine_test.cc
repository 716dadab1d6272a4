// Truth: losslessness, with the whole engine and its target on several devices of the PTX machine:
// the text of each request computed alone without drafts on as many; and the CPU backend in
// float32.
#include "backend_cuda/cuda_engine.h"

namespace pf {
namespace {

class ShardedLossless : public testing::Test {
 protected:
  void TearDown() override {
    for (const auto& f : ptxvm::take_findings()) ADD_FAILURE() << ptxvm::to_text(f);
  }
};

// Devices that share the target round their sums otherwise than one does, and each number of them
// in its own way; here the likeliest tokens are far enough apart for the text to be one.
TEST_F(ShardedLossless, DevicesThatShareTheTargetKeepTheText) {
  const auto cpu = alone(true, 6);
  const std::vector<CudaSetting> runs = {
      {.n_devices = 2},
      {.k = 3, .ngram = true, .model = true, .n_devices = 2},
      {.k = 3, .tree = {2, 2, 1}, .model = true, .n_devices = 2},
      {.k = 3, .model = true, .n_blocks = 7, .n_devices = 2},  // some are preempted
      {.k = 3, .tree = {2, 2, 1}, .model = true, .n_blocks = 7, .n_devices = 4},
      {.k = 3, .model = true, .n_devices = 4},
  };
  std::map<int32_t, std::map<uint64_t, std::vector<int32_t>>> plain;
  for (int32_t n : {2, 4}) plain[n] = alone({.n_devices = n}, 6);
  EXPECT_EQ(plain[2], cpu);
  EXPECT_EQ(plain[4], cpu);
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    const auto& want = plain[runs[i].n_devices];
    CudaEngine engine(runs[i]);
    EXPECT_EQ(engine.run({1, 2, 3, 4, 5, 6}), want);
    EXPECT_EQ(engine.run({2, 5}), (std::map<uint64_t, std::vector<int32_t>>{
                                      {2, want.at(2)}, {5, want.at(5)}}));  // prefix hits
    EXPECT_EQ(engine.drafted > 0, runs[i].k > 0);
    EXPECT_TRUE(engine.accepted > 0 || !runs[i].model);
    EXPECT_EQ(engine.n_preemptions() > 0, runs[i].n_blocks < 60);
  }
}

// A head over the hidden states of a target that is on two devices: it reads those of the first.
TEST_F(ShardedLossless, AHeadOverASharedTarget) {
  for (HeadKind kind : {HeadKind::kEagle, HeadKind::kEagle3}) {
    const CudaSetting shared{.k = 4, .head = kind, .temperature = 12, .n_devices = 2};
    const auto want = alone({.temperature = 12, .n_devices = 2}, 4);
    CudaEngine engine(shared);
    EXPECT_EQ(engine.run({1, 2, 3, 4}), want);
    EXPECT_GT(engine.accepted, 0);
  }
}

}  // namespace
}  // namespace pf
