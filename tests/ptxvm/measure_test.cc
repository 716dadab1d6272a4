// Truth: hand-counted steps, bank passes and sectors of PTX written for the purpose.
#include "ptxvm/measure.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ptxvm/ptxvm.h"

namespace pf::ptxvm {
namespace {

// One warp. Lane l loads word l * stride of x (global) and stores it to word l * stride of shared
// memory; the tail is jumped over when n > 0, and the mov under %p1 is never executed then either.
const char* kStrided = R"(.version 8.0
.target sm_80
.address_size 64
.file 1 "/somewhere/strided.cu"
.visible .entry strided_kernel(.param .u64 x, .param .u32 stride, .param .u32 n)
{
  .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %d<4>;
  .shared .align 4 .b8 s[8192];
  .loc 1 10 1
  ld.param.u64 %d1, [x];
  ld.param.u32 %r1, [stride];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %tid.x;
  mul.lo.u32 %r3, %r3, %r1;
  .loc 1 11 1
  mul.wide.u32 %d2, %r3, 4;
  add.u64 %d3, %d1, %d2;
  ld.global.u32 %r4, [%d3];
  .loc 1 12 1
  mov.u32 %r5, s;
  shl.b32 %r3, %r3, 2;
  add.u32 %r5, %r5, %r3;
  st.shared.u32 [%r5], %r4;
  .loc 1 13 1
  setp.eq.u32 %p1, %r2, 0;
  @%p1 mov.u32 %r4, 0;
  @!%p1 bra $end;
  .loc 1 14 1
  add.u32 %r4, %r4, 1;
  st.global.u32 [%d3], %r4;
$end:
  ret;
}
)";

class Strided : public testing::Test {
 protected:
  void SetUp() override {
    module_ = load_ptx(kStrided);
    ASSERT_NE(module_, nullptr);
    cudaMalloc(&x_, 8192);
    cudaMemset(x_, 0, 8192);
    clear_measures();
  }
  void TearDown() override {
    EXPECT_TRUE(take_findings().empty());
    cudaFree(x_);
    clear_measures();
  }
  Measure run(uint32_t stride, uint32_t n, uint32_t offset = 0) {
    char* at = static_cast<char*>(x_) + offset;
    void* args[] = {&at, &stride, &n};
    EXPECT_TRUE(launch_ptx(*module_, "strided_kernel", {1, 1, 1}, {32, 1, 1}, 0, args));
    return measure("strided");
  }
  std::shared_ptr<Module> module_;
  void* x_ = nullptr;
};

TEST_F(Strided, CoverageCountsWhatSomeLaneExecuted) {
  Measure m = run(1, 1);
  // 18 instructions; n = 1: the guarded mov and the two after the branch are not executed.
  EXPECT_EQ(m.n_instructions, 18u);
  EXPECT_EQ(m.n_executed, 15u);
  EXPECT_EQ(m.n_launches, 1u);
  // The mov is stepped over by the warp, without a lane.
  EXPECT_EQ(m.warp_steps, 16u);
  EXPECT_EQ(m.lane_steps, 15u * 32);
  auto lines = unreached_lines("strided");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].line, 13);
  EXPECT_THAT(lines[0].ptx, testing::ElementsAre(testing::StartsWith("mov.u32")));
  EXPECT_EQ(lines[0].n_instructions, 3u);
  EXPECT_EQ(lines[1].line, 14);
  EXPECT_EQ(lines[1].ptx.size(), 2u);
  EXPECT_EQ(lines[1].file, "/somewhere/strided.cu");
  EXPECT_THAT(unreached_text("strided"), testing::HasSubstr("strided.cu:14: 2 of 3 not reached"));

  m = run(1, 0);  // the other side too: now everything has run
  EXPECT_EQ(m.n_launches, 2u);
  EXPECT_EQ(m.coverage(), 1.0);
  EXPECT_EQ(unreached_text("strided"), "");
}

TEST_F(Strided, UnitStrideIsIdeal) {
  Measure m = run(1, 1);
  EXPECT_EQ(m.wavefronts, 1u);  // 32 words in 32 banks
  EXPECT_EQ(m.wavefronts_ideal, 1u);
  EXPECT_EQ(m.sectors, 4u);  // 128 bytes
  EXPECT_EQ(m.sectors_ideal, 4u);
  EXPECT_EQ(m.static_shared_bytes, 8192u);
}

TEST_F(Strided, StrideTwoHitsEachBankTwice) {
  Measure m = run(2, 1);
  EXPECT_EQ(m.wavefronts, 2u);
  EXPECT_EQ(m.wavefronts_ideal, 1u);
  EXPECT_EQ(m.sectors, 8u);  // 256 bytes touched, 128 used
  EXPECT_EQ(m.sectors_ideal, 4u);
  EXPECT_EQ(m.sectors_over_ideal(), 2.0);
}

TEST_F(Strided, Stride32IsOneBankAndASectorPerLane) {
  Measure m = run(32, 1);
  EXPECT_EQ(m.wavefronts_over_ideal(), 32.0);
  EXPECT_EQ(m.sectors, 32u);
}

TEST_F(Strided, OffsetByAWordCrossesIntoAFifthSector) {
  Measure m = run(1, 1, 4);
  EXPECT_EQ(m.sectors, 5u);
  EXPECT_EQ(m.sectors_ideal, 4u);
}

TEST_F(Strided, OneAddressIsABroadcast) {
  // Every lane writes the same value to one word: allowed, one pass, one sector.
  Measure m = run(0, 1);
  EXPECT_EQ(m.wavefronts, 1u);
  EXPECT_EQ(m.sectors, 1u);
}

TEST_F(Strided, LinesAreApart) {
  run(2, 1);
  uint64_t sectors = 0, wavefronts = 0;
  for (const Measure& l : line_measures("strided")) {
    if (l.line == 11) sectors = l.sectors;
    if (l.line == 12) wavefronts = l.wavefronts;
  }
  EXPECT_EQ(sectors, 8u);
  EXPECT_EQ(wavefronts, 2u);
}

TEST_F(Strided, NothingRanNothingMeasured) {
  Measure m = measure("no_such_kernel");
  EXPECT_EQ(m.n_launches, 0u);
  EXPECT_EQ(m.coverage(), 0.0);
  EXPECT_EQ(m.sectors_over_ideal(), 1.0);
}

}  // namespace
}  // namespace pf::ptxvm
