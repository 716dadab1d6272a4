// Truth: values worked by hand from the PTX ISA ("Data Movement and Conversion").
#include <gtest/gtest.h>

#include <bit>

#include "ptxvm/opcode.h"

namespace pf::ptxvm {
namespace {

uint64_t b(float v) { return std::bit_cast<uint32_t>(v); }
uint64_t b(double v) { return std::bit_cast<uint64_t>(v); }
constexpr uint64_t kOnes = 0xffffffff, kNaN = 0x7fc00000, kInf = 0x7f800000, kMinusInf = 0xff800000;

TEST(Convert, IntegersExtendTruncateAndSaturate) {
  expect_rows("d=r", {{"cvt.u64.u32", {kOnes}, kOnes},
                      {"cvt.s64.s32", {kOnes}, ~0ull},
                      {"cvt.u64.s32", {kOnes}, ~0ull},
                      {"cvt.s64.u32", {kOnes}, kOnes}});
  expect_rows("r=d", {{"cvt.u32.u64", {0x123456789}, 0x23456789},
                      {"cvt.sat.u32.u64", {0x123456789}, kOnes},
                      {"cvt.sat.s32.s64", {~0ull << 40}, 0x80000000},
                      {"cvt.s32.s64", {~0ull}, kOnes}});
  expect_rows("r=h", {{"cvt.u32.u16", {0x8000}, 0x8000},
                      {"cvt.s32.s16", {0x8000}, 0xffff8000},
                      {"cvt.s32.s8", {0x1280}, 0xffffff80},  // the low byte of the register
                      {"cvt.u32.u8", {0x1280}, 0x80}});
  expect_rows("h=r", {{"cvt.u16.u32", {0x12345}, 0x2345},
                      {"cvt.sat.u16.u32", {0x12345}, 0xffff},
                      {"cvt.sat.s16.s32", {0xfffe0000}, 0x8000},
                      {"cvt.sat.u16.s32", {kOnes}, 0},
                      {"cvt.u8.u32", {0x1ff}, 0xff},
                      {"cvt.s8.s32", {0x80}, 0xff80}});  // sign-extended in its register
  expect_rows("r=r", {{"cvt.sat.s8.s32", {1000}, 127},
                      {"cvt.sat.u8.s32", {kOnes}, 0},
                      {"cvt.sat.s32.u32", {kOnes}, 0x7fffffff}});
}

TEST(Convert, FloatToIntegerRoundsAndClamps) {
  expect_rows("r=r", {{"cvt.rni.s32.f32", {b(2.5f)}, 2},
                      {"cvt.rni.s32.f32", {b(3.5f)}, 4},
                      {"cvt.rzi.s32.f32", {b(-2.9f)}, 0xfffffffe},
                      {"cvt.rmi.s32.f32", {b(-2.1f)}, 0xfffffffd},
                      {"cvt.rpi.s32.f32", {b(-2.9f)}, 0xfffffffe},
                      {"cvt.rpi.u32.f32", {b(2.1f)}, 3},
                      {"cvt.rzi.u32.f32", {b(-1.0f)}, 0},
                      {"cvt.rzi.u32.f32", {b(1e20f)}, kOnes},
                      {"cvt.rzi.s32.f32", {kInf}, 0x7fffffff},
                      {"cvt.rzi.s32.f32", {kMinusInf}, 0x80000000},
                      {"cvt.rzi.s32.f32", {kNaN}, 0},
                      {"cvt.rpi.ftz.s32.f32", {1}, 0},
                      {"cvt.rpi.s32.f32", {1}, 1},
                      {"cvt.rni.sat.u8.f32", {b(300.0f)}, 255},
                      {"cvt.rni.sat.s8.f32", {b(-300.0f)}, 0xffffff80}});
  expect_rows("d=r", {{"cvt.rzi.s64.f32", {b(-0x1p40f)}, 0xffffff0000000000},
                      {"cvt.rzi.u64.f32", {b(0x1p63f)}, 1ull << 63}});
  expect_rows("r=d", {{"cvt.rzi.s32.f64", {b(-1e10)}, 0x80000000},
                      {"cvt.rni.u32.f64", {b(4294967295.0)}, kOnes}});
  expect_rows("h=h",
              {{"cvt.rni.s16.f16", {0x4100}, 2}, {"cvt.rzi.u16.f16", {0xbc00}, 0}});  // 2.5, -1
  expect_rows("r=h", {{"cvt.rni.s32.f16", {0x7bff}, 65504}});
}

TEST(Convert, IntegerToFloatRounds) {
  // 2^24 + 1 is half-way.
  expect_rows("r=r", {{"cvt.rn.f32.u32", {(1 << 24) + 1}, b(0x1p24f)},
                      {"cvt.rp.f32.u32", {(1 << 24) + 1}, b(0x1.000002p24f)},
                      {"cvt.rz.f32.s32", {0xfeffffff}, b(-0x1p24f)},
                      {"cvt.rm.f32.s32", {0xfeffffff}, b(-0x1.000002p24f)},
                      {"cvt.rn.f32.s32", {kOnes}, b(-1.0f)},
                      {"cvt.rn.f32.u32", {kOnes}, b(0x1p32f)}});
  expect_rows("r=h",
              {{"cvt.rn.f32.s16", {0xffff}, b(-1.0f)}, {"cvt.rn.f32.u8", {0xff}, b(255.0f)}});
  expect_rows("r=d", {{"cvt.rn.f32.u64", {~0ull}, b(0x1p64f)}});
  expect_rows("d=r", {{"cvt.rn.f64.s32", {0x80000000}, b(-0x1p31)}});
  expect_rows("d=d", {{"cvt.rz.f64.u64", {~0ull}, b(0x1.fffffffffffffp63)}});
  expect_rows("h=r", {{"cvt.rn.f16.s32", {2049}, 0x6800},
                      {"cvt.rp.f16.u32", {2049}, 0x6801},
                      {"cvt.rn.f16.u32", {70000}, 0x7c00}});
  expect_rows("h=h", {{"cvt.rn.f16.s16", {0xfffe}, 0xc000}});
}

TEST(Convert, BetweenFloats) {
  expect_rows("h=r", {{"cvt.rn.f16.f32", {b(1.0f)}, 0x3c00},
                      {"cvt.rn.f16.f32", {b(65519.0f)}, 0x7bff},
                      {"cvt.rn.f16.f32", {b(65520.0f)}, 0x7c00},
                      {"cvt.rz.f16.f32", {b(1e6f)}, 0x7bff},
                      {"cvt.rp.f16.f32", {b(1.00001f)}, 0x3c01},
                      {"cvt.rm.f16.f32", {b(-1.00001f)}, 0xbc01},
                      {"cvt.rn.f16.f32", {b(0x1p-25f)}, 0},
                      {"cvt.rn.f16.f32", {b(0x1.8p-25f)}, 1},
                      {"cvt.rn.f16.f32", {kNaN}, 0x7fff},
                      {"cvt.rn.relu.f16.f32", {b(-1.0f)}, 0},
                      {"cvt.rn.sat.f16.f32", {b(7.0f)}, 0x3c00},
                      {"cvt.rn.bf16.f32", {0x3f808000}, 0x3f80},  // half-way, to even
                      {"cvt.rn.bf16.f32", {0x3f818000}, 0x3f82},
                      {"cvt.rz.bf16.f32", {0x3f81ffff}, 0x3f81},
                      {"cvt.rn.bf16.f32", {0x7f7fffff}, 0x7f80},
                      {"cvt.rn.bf16.f32", {kNaN}, 0x7fff},
                      {"cvt.rn.relu.bf16.f32", {b(-2.0f)}, 0}});
  expect_rows("r=h", {{"cvt.f32.f16", {0x0001}, b(0x1p-24f)},
                      {"cvt.f32.f16", {0xfc00}, kMinusInf},
                      {"cvt.sat.f32.f16", {0xbc00}, 0},
                      {"cvt.ftz.f32.f16", {0x0001}, b(0x1p-24f)},  // normal as an f32
                      {"cvt.f32.bf16", {0x3f81}, 0x3f810000}});
  expect_rows("h=h", {{"cvt.f16.f16", {0x3c00}, 0x3c00},
                      {"cvt.rni.f16.f16", {0x3e00}, 0x4000}});  // 1.5 -> 2
  expect_rows("r=r", {{"cvt.rni.f32.f32", {b(2.5f)}, b(2.0f)},
                      {"cvt.rzi.f32.f32", {b(-0.5f)}, 0x80000000},
                      {"cvt.rmi.f32.f32", {b(-0.5f)}, b(-1.0f)},
                      {"cvt.rpi.f32.f32", {b(1.1f)}, b(2.0f)},
                      {"cvt.sat.f32.f32", {b(1.5f)}, b(1.0f)},
                      {"cvt.sat.f32.f32", {kNaN}, 0},
                      {"cvt.ftz.f32.f32", {1}, 0}});
  expect_rows("d=r", {{"cvt.f64.f32", {b(1.5f)}, b(1.5)}});
  expect_rows("r=d", {{"cvt.rn.f32.f64", {b(1 + 0x1p-24)}, b(1.0f)},
                      {"cvt.rp.f32.f64", {b(1 + 0x1p-30)}, b(0x1.000002p0f)},
                      {"cvt.rn.f32.f64", {b(1e300)}, kInf},
                      {"cvt.rn.ftz.f32.f64", {b(0x1p-140)}, 0}});
  expect_rows("h=d", {{"cvt.rn.f16.f64", {b(0.5)}, 0x3800}});
}

TEST(Convert, PairsTakeTheUpperHalfFirst) {
  expect_rows("r=rr", {{"cvt.rn.f16x2.f32", {b(1.0f), b(2.0f)}, 0x3c004000},
                       {"cvt.rn.relu.f16x2.f32", {b(-1.0f), b(2.0f)}, 0x00004000},
                       {"cvt.rz.f16x2.f32", {b(1.0009f), b(-1e9f)}, 0x3c00fbff},
                       {"cvt.rn.f16x2.f32", {kNaN, b(0.0f)}, 0x7fff0000},
                       {"cvt.rn.bf16x2.f32", {b(1.0f), b(2.0f)}, 0x3f804000},
                       {"cvt.rz.bf16x2.f32", {0x3f81ffff, 0x3f80ffff}, 0x3f813f80}});
}

TEST(Move, RegistersVectorsAndPredicates) {
  expect_rows("r=r", {{"mov.b32", {5}, 5}, {"mov.u32", {kOnes}, kOnes}});
  expect_rows("h=h", {{"mov.b16", {0xabcd}, 0xabcd}});
  expect_rows("d=d", {{"mov.b64", {1ull << 50}, 1ull << 50}});
  expect_rows("p=p", {{"mov.pred", {1}, 1}, {"mov.pred", {0}, 0}});
  auto out = run({.text = R"(
    mov.b64 %d1, {0x11111111, 0x22222222};        // the first part is the lowest
    mov.b64 {%r1, %r2}, %d1;
    mov.b32 {%h1, %h2}, 0xaaaabbbb;
    mov.b32 %r3, {%h2, %h1};
    mov.b64 {%h3, %h4, %h5, %h6}, 0x4444333322221111;
    mov.b64 %d2, {%h6, %h5, %h4, %h3};
    mov.b64 {%r4, %r5}, %d2;
    mov.b64 {_, %r6}, %d1;
    mov.f32 %f1, 0f3F800000;
    mov.f64 %g1, 0d4000000000000000;
    cvt.rn.f32.f64 %f2, %g1;
    mov.b32 %r7, -1;
    mov.f32 %f3, 1.5;
    st.global.v4.b32 [%out], {%r1, %r2, %r3, %r4};
    st.global.v4.b32 [%out+16], {%r5, %r6, %f1, %f2};
    st.global.v2.b32 [%out+32], {%r7, %f3};)",
                  .block = {1, 1, 1},
                  .out_words = 10});
  EXPECT_EQ(out,
            (std::vector<uint32_t>{0x11111111, 0x22222222, 0xbbbbaaaa, 0x33334444, 0x11112222,
                                   0x22222222, 0x3f800000, 0x40000000, 0xffffffff, 0x3fc00000}));
}

// Windows: a generic address says which space it is in; to and from are each other's inverse.
TEST(Move, AddressSpaces) {
  auto out = run({.text = R"(
    .local .align 4 .b8 mine[16];
    mov.u32 %r1, smem;
    cvt.u64.u32 %d1, %r1;
    cvta.shared.u64 %d2, %d1;
    cvta.to.shared.u64 %d3, %d2;
    isspacep.shared %p1, %d2;
    isspacep.global %p2, %d2;
    isspacep.local %p3, %d2;
    isspacep.global %p4, %out;
    mov.u64 %d4, mine;
    cvta.local.u64 %d5, %d4;
    isspacep.local %p5, %d5;
    cvta.to.global.u64 %d6, %out;
    mov.u64 %d7, table;
    cvta.const.u64 %d8, %d7;
    isspacep.const %p6, %d8;
    isspacep.const %p7, %out;
    isspacep.global %p8, %d8;
    st.shared.u32 [smem], 77;
    ld.u32 %r2, [%d2];                 // generic, into shared memory
    st.u32 [%d5+4], 88;                // generic, into local memory
    ld.local.u32 %r3, [mine+4];
    ld.const.u32 %r4, [table+4];
    ld.u32 %r5, [%d8];
    setp.eq.u64 %p9, %d1, %d3;
    setp.eq.u64 %p10, %d6, %out;
    selp.b32 %r6, 1, 0, %p1; selp.b32 %r7, 1, 0, %p2; selp.b32 %r8, 1, 0, %p3;
    selp.b32 %r9, 1, 0, %p4; selp.b32 %r10, 1, 0, %p5; selp.b32 %r11, 1, 0, %p6;
    selp.b32 %r12, 1, 0, %p7; selp.b32 %r13, 1, 0, %p9; selp.b32 %r14, 1, 0, %p10;
    selp.b32 %r15, 1, 0, %p8;
    st.global.v4.b32 [%out], {%r2, %r3, %r4, %r5};
    st.global.v4.b32 [%out+16], {%r6, %r7, %r8, %r9};
    st.global.v4.b32 [%out+32], {%r10, %r11, %r12, %r13};
    st.global.v2.b32 [%out+48], {%r14, %r15};)",
                  .block = {1, 1, 1},
                  .out_words = 14,
                  .before = ".const .align 4 .u32 table[2] = {5, 6};\n"});
  EXPECT_EQ(out, (std::vector<uint32_t>{77, 88, 6, 5, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0}));
}

}  // namespace
}  // namespace pf::ptxvm
