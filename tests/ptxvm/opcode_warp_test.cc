// Truth: the pseudo-code of the PTX ISA ("Parallel Synchronization", "shfl.sync", "Control Flow",
// special registers), worked by hand per lane.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptxvm/opcode.h"

namespace pf::ptxvm {
namespace {

using Words = std::vector<uint32_t>;
constexpr uint32_t kAll = 0xffffffff;

// r0 = 100 + lane of the source; out-of-range lanes (p false) give 1000 + that.
Words shuffle(const std::string& instruction, Dim3 block = {32, 1, 1}) {
  return run({.text = "add.u32 %r1, %lane, 100;\n" + instruction +
                      "\n@!%p1 add.u32 %r0, %r0, 1000;" + kStore,
              .block = block});
}

TEST(Shuffle, UpKeepsTheFirstLanes) {
  Words out = shuffle("shfl.sync.up.b32 %r0|%p1, %r1, 3, 0, 0xffffffff;");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l < 3 ? 1100 + l : 97 + l) << l;
}
TEST(Shuffle, DownKeepsTheLastLanes) {
  Words out = shuffle("shfl.sync.down.b32 %r0|%p1, %r1, 5, 31, 0xffffffff;");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l > 26 ? 1100 + l : 105 + l) << l;
}
TEST(Shuffle, ButterflyWithinClamp) {
  Words out = shuffle("shfl.sync.bfly.b32 %r0|%p1, %r1, 16, 31, 0xffffffff;");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 100 + (l ^ 16)) << l;
  // clamp 15 without a segment mask: maxLane = 15, so reading lanes 16..31 is out of range
  out = shuffle("shfl.sync.bfly.b32 %r0|%p1, %r1, 16, 15, 0xffffffff;");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l < 16 ? 1100 + l : 100 + l - 16) << l;
}
TEST(Shuffle, SegmentsOfEight) {
  // mask 0x18 << 8 | clamp 7: segments of 8 lanes, as __shfl_*_sync(..., 8) makes them
  Words down = shuffle("shfl.sync.down.b32 %r0|%p1, %r1, 3, 0x1807, 0xffffffff;");
  Words up = shuffle("shfl.sync.up.b32 %r0|%p1, %r1, 3, 0x1800, 0xffffffff;");
  Words index = shuffle("shfl.sync.idx.b32 %r0|%p1, %r1, 10, 0x1807, 0xffffffff;");
  for (uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(down[l], l % 8 < 5 ? 103 + l : 1100 + l) << l;
    EXPECT_EQ(up[l], l % 8 >= 3 ? 97 + l : 1100 + l) << l;
    EXPECT_EQ(index[l], 100 + l / 8 * 8 + 2) << l;  // 10 mod 8
  }
}
TEST(Shuffle, IndexPastTheClampIsOutOfRange) {
  Words out = shuffle("shfl.sync.idx.b32 %r0|%p1, %r1, 20, 15, 0xffffffff;");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 1100 + l) << l;
  out = shuffle("shfl.sync.idx.b32 %r0|%p1, %r1, 37, 31, 0xffffffff;");  // the amount mod 32
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 105u) << l;
}
TEST(Shuffle, AmountPerLane) {
  Words out =
      shuffle("sub.u32 %r2, 31, %lane; shfl.sync.idx.b32 %r0|%p1, %r1, %r2, 31, 0xffffffff;");
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 131 - l) << l;
}
TEST(Shuffle, HalfTheWarpByMask) {
  Words out = run({.text = std::string(R"(
    mov.u32 %r0, 7;
    setp.lt.u32 %p2, %lane, 16;
    @!%p2 bra $skip;
    shfl.sync.bfly.b32 %r0, %lane, 1, 31, 0x0000ffff;
    $skip:)") + kStore});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l < 16 ? l ^ 1 : 7) << l;
}

TEST(Vote, AllAnyUniBallot) {
  Words out = run({.text = std::string(R"(
    setp.lt.u32 %p1, %lane, 5;
    setp.lt.u32 %p2, %lane, 32;
    setp.gt.u32 %p3, %lane, 99;
    vote.sync.all.pred %p4, %p1, 0xffffffff;
    vote.sync.all.pred %p5, %p2, 0xffffffff;
    vote.sync.any.pred %p6, %p1, 0xffffffff;
    vote.sync.any.pred %p7, %p3, 0xffffffff;
    vote.sync.uni.pred %p8, %p1, 0xffffffff;
    vote.sync.uni.pred %p9, %p3, 0xffffffff;
    vote.sync.any.pred %p10, !%p2, 0xffffffff;
    vote.sync.ballot.b32 %r1, %p1, 0xffffffff;
    mov.u32 %r0, 0;
    @%p4 or.b32 %r0, %r0, 1;
    @%p5 or.b32 %r0, %r0, 2;
    @%p6 or.b32 %r0, %r0, 4;
    @%p7 or.b32 %r0, %r0, 8;
    @%p8 or.b32 %r0, %r0, 16;
    @%p9 or.b32 %r0, %r0, 32;
    @%p10 or.b32 %r0, %r0, 64;
    shl.b32 %r1, %r1, 8;
    or.b32 %r0, %r0, %r1;)") +
                           kStore});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], (0x1fu << 8) | 2 | 4 | 32) << l;
}
TEST(Vote, OnlyNamedLanesCount) {
  Words out = run({.text = std::string(R"(
    mov.u32 %r0, 0;
    setp.ge.u32 %p1, %lane, 16;
    @!%p1 bra $skip;
    setp.eq.u32 %p2, %lane, 20;
    vote.sync.ballot.b32 %r0, !%p2, 0xffff0000;
    $skip:)") + kStore});
  EXPECT_EQ(out[3], 0u);
  EXPECT_EQ(out[31], 0xffef0000u);
}
TEST(Vote, ActiveMask) {
  Words out = run({.text = std::string(R"(
    activemask.b32 %r0;
    setp.lt.u32 %p1, %lane, 4;
    @%p1 activemask.b32 %r0;)") +
                           kStore});
  EXPECT_EQ(out[0], 0xfu);
  EXPECT_EQ(out[31], kAll);
}

TEST(Match, AnyAndAll) {
  Words out = run({.text = std::string(R"(
    and.b32 %r1, %lane, 3;
    match.any.sync.b32 %r0, %r1, 0xffffffff;)") +
                           kStore});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 0x11111111u << (l & 3)) << l;
  out = run({.text = std::string(R"(
    mov.b64 %d1, 0x100000000;
    match.all.sync.b64 %r0|%p1, %d1, 0xffffffff;
    @!%p1 mov.u32 %r0, 99;)") +
                     kStore});
  EXPECT_EQ(out[7], kAll);
  out = run({.text = std::string(R"(
    match.all.sync.b32 %r0|%p1, %lane, 0xffffffff;
    @!%p1 add.u32 %r0, %r0, 99;)") +
                     kStore});
  EXPECT_EQ(out[7], 99u);  // d is 0 when not all match
}

TEST(Redux, EachOperation) {
  auto reduced = [](const std::string& op) {
    return run({.text = "sub.s32 %r1, %lane, 10;\nredux.sync." + op + " %r0, %r1, 0xffffffff;" +
                        kStore})[9];
  };
  EXPECT_EQ(reduced("add.s32"), 31u * 16 - 320);
  EXPECT_EQ(reduced("add.u32"), 31u * 16 - 320);
  EXPECT_EQ(reduced("min.s32"), 0xfffffff6u);  // -10
  EXPECT_EQ(reduced("max.s32"), 21u);
  EXPECT_EQ(reduced("min.u32"), 0u);
  EXPECT_EQ(reduced("max.u32"), kAll);
  auto bits = [](const std::string& op) {
    return run({.text = "or.b32 %r1, %lane, 0x100;\nredux.sync." + op + " %r0, %r1, 0xffffffff;" +
                        kStore})[9];
  };
  EXPECT_EQ(bits("and.b32"), 0x100u);
  EXPECT_EQ(bits("or.b32"), 0x11fu);
  EXPECT_EQ(bits("xor.b32"), 0u);  // every bit is set in 16 or 32 lanes
}

TEST(Special, RegistersOfAThread) {
  // Block (8, 4, 2), second block of a grid (1, 2): threads 32..63 are the second warp.
  Words out = run({.text = R"(
    mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
    mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;
    mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %ctaid.z;
    mov.u32 %r10, %nctaid.x; mov.u32 %r11, %nctaid.y; mov.u32 %r12, %nctaid.z;
    mov.u32 %r13, %warpid; mov.u32 %r14, %nwarpid; mov.u32 %r15, %laneid;
    mov.u32 %r16, %lanemask_eq; mov.u32 %r17, %lanemask_lt; mov.u32 %r18, %lanemask_le;
    mov.u32 %r19, %lanemask_gt; mov.u32 %r20, %lanemask_ge;
    mov.u32 %r21, %total_smem_size; mov.u32 %r22, %dynamic_smem_size; mov.u32 %r23, %gridid;
    mov.u32 %r24, WARP_SZ; mov.u32 %r25, %nsmid;
    mov.u32 %r26, %clock; mov.u64 %d1, %clock64; mov.u64 %d2, %globaltimer; mov.u32 %r27, %smid;
    setp.ne.u32 %p1, %r1, 5; setp.ne.or.u32 %p1, %r2, 2, %p1; setp.ne.or.u32 %p1, %r3, 1, %p1;
    setp.ne.or.u32 %p1, %r8, 1, %p1;
    @%p1 exit;
    st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};
    st.global.v4.u32 [%out+16], {%r5, %r6, %r7, %r8};
    st.global.v4.u32 [%out+32], {%r9, %r10, %r11, %r12};
    st.global.v4.u32 [%out+48], {%r13, %r14, %r15, %r16};
    st.global.v4.u32 [%out+64], {%r17, %r18, %r19, %r20};
    st.global.v4.u32 [%out+80], {%r21, %r22, %r23, %r24};
    st.global.u32 [%out+96], %r25;)",
                   .block = {8, 4, 2},
                   .grid = {1, 2, 1}});
  // Thread (5, 2, 1): index 5 + 2 * 8 + 1 * 32 = 53, so lane 21 of warp 1.
  EXPECT_EQ(Words(out.begin(), out.begin() + 25), (Words{5,
                                                         2,
                                                         1,
                                                         8,
                                                         4,
                                                         2,
                                                         0,
                                                         1,
                                                         0,
                                                         1,
                                                         2,
                                                         1,
                                                         1,
                                                         2,
                                                         21,
                                                         1u << 21,
                                                         (1u << 21) - 1,
                                                         (1u << 22) - 1,
                                                         kAll << 22,
                                                         kAll << 21,
                                                         4096,
                                                         0,
                                                         0,
                                                         32,
                                                         108}));
}

TEST(Flow, BranchesLoopsAndTables) {
  Words out = run({.text = std::string(R"(
    mov.u32 %r0, 0;
    mov.u32 %r1, 0;
    $loop: add.u32 %r0, %r0, %r1;
    add.u32 %r1, %r1, 1;
    setp.le.u32 %p1, %r1, %lane;
    @%p1 bra $loop;
    bra.uni $past;
    mov.u32 %r0, 12345;
    $past:)") + kStore});
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[l], l * (l + 1) / 2) << l;  // lanes leave one by one
  out = run({.text = std::string(R"(
    and.b32 %r1, %lane, 3;
    $targets: .branchtargets $a, $b, $c, $d;
    brx.idx %r1, $targets;
    $a: mov.u32 %r0, 10; bra $join;
    $b: mov.u32 %r0, 11; bra $join;
    $c: mov.u32 %r0, 12; bra $join;
    $d: mov.u32 %r0, 13;
    $join:)") + kStore});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 10 + l % 4) << l;
}
TEST(Flow, CallsPassParametersAndReturnEarly) {
  Words out = run({.text = std::string(R"(
    { .param .b32 a; .param .b32 result;
      st.param.b32 [a], %lane;
      call.uni (result), triple, (a);
      ld.param.b32 %r0, [result]; })") +
                           kStore,
                   .before = R"(
.func (.param .b32 result) triple(.param .b32 a) {
  .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.b32 %r1, [a];
  mul.lo.s32 %r2, %r1, 3;
  st.param.b32 [result], %r2;
  setp.lt.u32 %p1, %r1, 16;
  @%p1 ret;
  st.param.b32 [result], 1;
  ret;
}
)"});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l < 16 ? 3 * l : 1) << l;
}
TEST(Flow, ExitEndsALane) {
  Words out = run({.text = std::string(R"(
    mov.u32 %r0, 1;
    setp.gt.u32 %p1, %lane, 20;
    @%p1 exit;)") + kStore});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l > 20 ? kAll : 1) << l;
}
TEST(Flow, TrapAndBreakAreFindings) {
  EXPECT_EQ(finding_of({.text = "trap;"}).kind, Kind::kTrap);
  EXPECT_EQ(finding_of({.text = "brkpt;"}).kind, Kind::kTrap);
}

TEST(Barrier, OrdersTheBlockAndReduces) {
  // Thread t reads what thread 63 - t wrote, in the other warp.
  Words out = run({.text = std::string(R"(
    mov.u32 %r1, smem;
    shl.b32 %r2, %t, 2;
    add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %t;
    bar.sync 0;
    sub.u32 %r4, 252, %r2;
    add.u32 %r4, %r4, %r1;
    ld.shared.u32 %r0, [%r4];)") +
                           kStore,
                   .block = {64, 1, 1},
                   .out_words = 64});
  for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(out[t], 63 - t) << t;
  out = run({.text = std::string(R"(
    setp.lt.u32 %p1, %t, 40;
    barrier.cta.red.popc.aligned.u32 %r0, 0, %p1;
    bar.red.and.pred %p2, 0, %p1;
    bar.red.or.pred %p3, 0, %p1;
    bar.red.popc.u32 %r1, 1, 64, !%p1;
    @%p2 add.u32 %r0, %r0, 1000;
    @%p3 add.u32 %r0, %r0, 2000;
    mad.lo.u32 %r0, %r1, 10000, %r0;)") +
                     kStore,
             .block = {64, 1, 1},
             .out_words = 64});
  for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(out[t], 242040u) << t;
}
TEST(Barrier, NamedBarriersPair) {
  // Warp 0 produces and only arrives; warp 1 waits for it at barrier 3.
  Words out = run({.text = R"(
    setp.lt.u32 %p1, %t, 32;
    mov.u32 %r1, smem;
    shl.b32 %r2, %lane, 2;
    add.u32 %r1, %r1, %r2;
    @!%p1 bra $consume;
    st.shared.u32 [%r1], %lane;
    bar.arrive 3, 64;
    bra $end;
    $consume:
    barrier.sync 3, 64;
    ld.shared.u32 %r3, [%r1];
    cvt.u64.u32 %d1, %r2;
    add.u64 %d1, %d1, %out;
    st.global.u32 [%d1], %r3;
    $end:)",
                   .block = {64, 1, 1}});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l) << l;
}
TEST(Barrier, WarpBarrierOrdersLanes) {
  Words out = run({.text = std::string(R"(
    mov.u32 %r1, smem;
    shl.b32 %r2, %lane, 2;
    add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %lane;
    bar.warp.sync 0xffffffff;
    xor.b32 %r2, %r2, 4;
    add.u32 %r3, %r1, %r2;
    ld.shared.u32 %r0, [%r3];)") +
                           kStore});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l ^ 1) << l;
}
TEST(Barrier, HintsDoNothing) {
  Words out = run({.text = std::string(R"(
    mov.u32 %r0, 5;
    nanosleep.u32 100;
    griddepcontrol.wait;
    griddepcontrol.launch_dependents;
    prefetch.global.L2 [%in];
    prefetchu.L1 [%in];
    membar.gl; membar.cta; fence.acq_rel.gpu; fence.sc.sys;)") +
                           kStore});
  EXPECT_EQ(out, Words(32, 5));
}

}  // namespace
}  // namespace pf::ptxvm
