// Truth: values worked by hand from the PTX ISA ("ld", "st", "atom", "red", "cp.async").
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptxvm/opcode.h"

namespace pf::ptxvm {
namespace {

using Words = std::vector<uint32_t>;
using testing::HasSubstr;
const Dim3 kOne = {1, 1, 1};

TEST(Memory, LoadsExtendByType) {
  Words out = run({.text = R"(
    ld.global.u8 %r1, [%in];        // 0x80
    ld.global.s8 %r2, [%in];
    ld.global.u16 %r3, [%in+2];     // 0xfffe
    ld.global.s16 %r4, [%in+2];
    ld.global.s32 %d1, [%in+4];     // into a wider register
    ld.global.u32 %d2, [%in+4];
    ld.global.b64 %d3, [%in+8];
    ld.global.s8 %d4, [%in];
    ld.global.u8 %h1, [%in];
    ld.global.s8 %h2, [%in];
    cvt.u32.u16 %r5, %h1;
    cvt.u32.u16 %r6, %h2;
    st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};
    st.global.v2.b64 [%out+16], {%d1, %d2};
    st.global.b64 [%out+32], %d3;
    st.global.b64 [%out+40], %d4;
    st.global.v2.b32 [%out+48], {%r5, %r6};)",
                   .block = kOne,
                   .in = {0xfffe0080, 0xffffffff, 0x11111111, 0x22222222},
                   .out_words = 14});
  EXPECT_EQ(out, (Words{0x80, 0xffffff80, 0xfffe, 0xfffffffe, 0xffffffff, 0xffffffff, 0xffffffff, 0,
                        0x11111111, 0x22222222, 0xffffff80, 0xffffffff, 0x80, 0xff80}));
}
TEST(Memory, StoresAndVectors) {
  Words out = run({.text = R"(
    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%in];
    ld.global.v2.b64 {%d1, %d2}, [%in];
    ld.global.v2.u16 {%h1, %h2}, [%in];
    ld.global.v4.u8 {%h3, %h4, %h5, %h6}, [%in];
    ld.global.nc.L1::no_allocate.L2::128B.v2.f32 {%f1, %f2}, [%in+8];
    ldu.global.u32 %r5, [%in+4];
    ld.volatile.global.u32 %r6, [%in];
    ld.relaxed.gpu.global.u32 %r7, [%in];
    ld.acquire.gpu.global.u32 %r8, [%in];
    st.global.u8 [%out], 0x1ff;
    st.global.u8 [%out+1], %h4;
    st.global.u16 [%out+2], %h2;
    st.global.v2.u16 [%out+4], {%h2, %h1};
    st.global.cs.v4.b32 [%out+16], {%r4, %r3, %r2, %r1};
    st.global.v2.b64 [%out+32], {%d2, %d1};
    st.global.v2.f32 [%out+48], {%f2, %f1};
    st.release.gpu.global.u32 [%out+56], %r5;
    st.volatile.global.u32 [%out+60], %r7;
    st.global.u32 [%out+8], %r6;
    st.global.u32 [%out+12], %r8;)",
                   .block = kOne,
                   .in = {0x44332211, 2, 3, 4},
                   .out_words = 16});
  EXPECT_EQ(out, (Words{0x443322ff, 0x22114433, 0x44332211, 0x44332211, 4, 3, 2, 0x44332211, 3, 4,
                        0x44332211, 2, 4, 3, 2, 0x44332211}));
}
TEST(Memory, SharedLocalAndNegativeOffsets) {
  Words out = run({.text = std::string(R"(
    .local .align 8 .b8 mine[32];
    shl.b32 %r1, %lane, 2;
    mov.u32 %r2, smem;
    add.u32 %r2, %r2, %r1;
    st.shared.u32 [%r2+128], %lane;
    add.u32 %r3, %r2, 256;
    ld.shared.u32 %r4, [%r3+-128];
    mov.u64 %d1, mine;
    st.local.u32 [%d1+8], %r4;
    ld.local.u32 %r0, [mine+8];)") +
                           kStore});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l) << l;
}

// `op` on one word of the given space by 32 lanes; the word afterwards.
uint32_t after_all(const std::string& op, const std::string& value, uint32_t start, bool shared) {
  std::string at = shared ? "smem" : "%out";
  return run({.text = "setp.eq.u32 %p1, %lane, 0;\n@%p1 st." +
                      std::string(shared ? "shared" : "global") + ".b32 [" + at + "], " +
                      std::to_string(start) + ";\nbar.warp.sync 0xffffffff;\n" + value + "\nred." +
                      (shared ? "shared." : "global.") + op + " [" + at +
                      "], %r1;\nbar.warp.sync 0xffffffff;\n" +
                      (shared ? "ld.shared.b32 %r2, [smem];\n@%p1 st.global.b32 [%out], %r2;" : ""),
              .out_words = 1})[0];
}
TEST(Atomics, ReduceInGlobalAndShared) {
  for (bool shared : {false, true}) {
    EXPECT_EQ(after_all("add.u32", "mov.u32 %r1, %lane;", 4, shared), 500u);
    EXPECT_EQ(after_all("min.s32", "sub.s32 %r1, 5, %lane;", 0, shared), 0xffffffe6u);  // -26
    EXPECT_EQ(after_all("min.u32", "sub.s32 %r1, 5, %lane;", 9, shared), 0u);
    EXPECT_EQ(after_all("max.s32", "sub.s32 %r1, 5, %lane;", 0xffffffff, shared), 5u);
    EXPECT_EQ(after_all("max.u32", "sub.s32 %r1, 5, %lane;", 0, shared), 0xffffffffu);
    EXPECT_EQ(after_all("and.b32", "not.b32 %r1, %lane;", 0xffffffff, shared), 0xffffffe0u);
    EXPECT_EQ(after_all("or.b32", "mov.u32 %r1, %lane;", 0x100, shared), 0x11fu);
    EXPECT_EQ(after_all("xor.b32", "mov.u32 %r1, 1;", 7, shared), 7u);
    EXPECT_EQ(after_all("inc.u32", "mov.u32 %r1, 9;", 0, shared), 2u);  // 32 mod 10
    EXPECT_EQ(after_all("dec.u32", "mov.u32 %r1, 9;", 3, shared), 1u);  // 3 2 1 0 9 ...: 32 steps
    EXPECT_EQ(after_all("add.f32", "mov.b32 %r1, 0f3F000000;", 0x3f800000, shared),
              0x41880000u);  // 17
    EXPECT_EQ(after_all("add.noftz.f16x2", "mov.b32 %r1, 0x3c004000;", 0, shared),
              0x50005400u);  // 32, 64
    EXPECT_EQ(after_all("add.noftz.bf16x2", "mov.b32 %r1, 0x3f804000;", 0, shared), 0x42004280u);
  }
}
TEST(Atomics, GiveTheOldValue) {
  Words out = run({.text = std::string(R"(
    setp.eq.u32 %p1, %lane, 0;
    @%p1 st.shared.v2.b32 [smem], {0, 0};
    bar.warp.sync 0xffffffff;
    atom.shared.add.u32 %r1, [smem], 1;
    atom.shared::cta.inc.u32 %r2, [smem+4], 3;
    mad.lo.u32 %r0, %r2, 100, %r1;)") +
                           kStore});
  std::vector<bool> seen(32);
  for (uint32_t v : out) {
    ASSERT_LT(v % 100, 32u);
    EXPECT_FALSE(seen[v % 100]);
    seen[v % 100] = true;
    EXPECT_LE(v / 100, 3u);
  }
}
TEST(Atomics, SwapsAndNarrowOnes) {
  Words out = run({.text = R"(
    st.global.v4.b32 [%out], {5, 0x3c003c00, 7, 0};
    st.global.v2.b64 [%out+16], {100, 0xffffffffffffffff};
    st.global.v2.b64 [%out+32], {0d3FF0000000000000, 0};
    atom.global.cas.b32 %r1, [%out], 5, 9;         // hit: 9 stays
    atom.global.cas.b32 %r2, [%out], 5, 11;        // miss
    atom.global.add.noftz.f16 %h1, [%out+6], 0x3c00;   // the upper half: 1 + 1
    atom.global.cas.b16 %h2, [%out+4], 0x3c00, 0x1234;
    atom.global.exch.b32 %r3, [%out+8], 8;
    atom.add.u64 %d1, [%out+16], 1;                // generic
    atom.global.max.s64 %d2, [%out+24], 3;
    atom.global.add.f64 %g1, [%out+32], 0d4000000000000000;
    atom.global.gpu.acq_rel.exch.b64 %d3, [%out+40], 77;
    atom.global.add.noftz.bf16 %h3, [%out+12], 0x3f80;
    red.release.gpu.global.add.u32 [%out+8], 1;
    cvt.u32.u16 %r4, %h1; cvt.u32.u16 %r5, %h2;
    st.global.v4.b32 [%out+48], {%r1, %r2, %r3, %r4};
    cvt.u32.u64 %r6, %d1; cvt.u32.u64 %r7, %d2; cvt.u32.u64 %r8, %d3;
    st.global.v4.b32 [%out+64], {%r5, %r6, %r7, %r8};)",
                   .block = kOne,
                   .out_words = 20});
  EXPECT_EQ(out, (Words{9,  0x40001234, 9, 0x3f80, 101, 0,      3,      0,   0,          0x40080000,
                        77, 0,          5, 9,      7,   0x3c00, 0x3c00, 100, 0xffffffff, 0}));
}

// Lane l copies 16 bytes to smem + 16 * l, in groups.
const char* const kAsyncHead = R"(
    shl.b32 %r1, %lane, 4;
    mov.u32 %r2, smem;
    add.u32 %r2, %r2, %r1;
    cvt.u64.u32 %d1, %r1;
    add.u64 %d1, %d1, %in;
)";
Words counting(uint32_t n) {
  Words w(n);
  for (uint32_t i = 0; i < n; ++i) w[i] = i;
  return w;
}
TEST(AsyncCopy, GroupsCompleteInOrder) {
  // Two groups; waiting for all but one makes the first visible, wait_all the second.
  Words out = run({.text = std::string(kAsyncHead) + R"(
    cp.async.cg.shared.global [%r2], [%d1], 16;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r2+512], [%d1+512], 4;
    cp.async.ca.shared.global [%r2+520], [%d1+512], 8;
    cp.async.commit_group;
    cp.async.wait_group 1;
    ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r2];
    cp.async.wait_group 0;
    ld.shared.u32 %r7, [%r2+512];
    ld.shared.u32 %r8, [%r2+524];
    add.u32 %r0, %r3, %r6;
    mad.lo.u32 %r0, %r7, 1000, %r0;
    mad.lo.u32 %r0, %r8, 1000000, %r0;)" +
                           kStore,
                   .in = counting(256)});
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[l], 8 * l + 3 + 1000 * (128 + 4 * l) + 1000000 * (129 + 4 * l)) << l;
}
TEST(AsyncCopy, ShortSourcesAreFilledWithZeros) {
  Words out = run({.text = std::string(kAsyncHead) + R"(
    mov.u32 %r9, 8;
    cp.async.cg.shared.global [%r2], [%d1], 16, %r9;
    cp.async.cg.shared.global [%r2+512], [%d1], 16, 0;
    setp.ge.u32 %p1, %lane, 16;                    // ignored source: zeros
    cp.async.ca.shared.global [%r2+1024], [%d1], 4, %p1;
    cp.async.wait_all;
    ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r2];
    ld.shared.u32 %r7, [%r2+516];
    ld.shared.u32 %r8, [%r2+1024];
    or.b32 %r5, %r5, %r6;
    or.b32 %r5, %r5, %r7;
    mad.lo.u32 %r0, %r5, 1000000, %r4;
    mad.lo.u32 %r0, %r8, 1000, %r0;)" +
                           kStore,
                   .in = counting(128)});
  for (uint32_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], 4 * l + 1 + (l < 16 ? 4000 * l : 0)) << l;
}

TEST(Refusals, NameTheInstruction) {
  auto refused = [](const std::string& text, const std::string& what) {
    Finding f = finding_of({.text = text});
    EXPECT_EQ(f.kind, Kind::kUnsupported) << text;
    EXPECT_THAT(f.message, HasSubstr(what)) << text;
  };
  refused("frobnicate.b32 %r1, %r2;", "unknown opcode 'frobnicate.b32'");
  refused("add.v7.s32 %r1, %r2, %r3;", "unsupported modifier .v7");
  refused("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1,%d2}, {%d3}, {%d4}, {%d1,%d2};",
          "unsupported shape");
  refused("cvt.u32.f32 %r1, %f1;", "needs .rni");
  refused("add.s32 %r1, %d1, %r2;", "another width");
  refused("mov.b32 %r1, nowhere;", "unknown name nowhere");
  refused("bra $nowhere;", "no label $nowhere");
  refused("call (%r1), missing, (%r2);", "");
}

}  // namespace
}  // namespace pf::ptxvm
