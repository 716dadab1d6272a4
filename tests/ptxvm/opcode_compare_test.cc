// Truth: values worked by hand from the PTX ISA ("Comparison and Select").
#include <gtest/gtest.h>

#include "ptxvm/opcode.h"

namespace pf::ptxvm {
namespace {

constexpr uint64_t kOnes = 0xffffffff;
// f32 patterns
constexpr uint64_t kOne = 0x3f800000, kTwo = 0x40000000, kNaN = 0x7fc00000, kTiny = 1,
                   kMinusTiny = 0x80000001;

TEST(Compare, IntegersBySign) {
  expect_rows("p=rr", {{"setp.lt.s32", {kOnes, 1}, 1},
                       {"setp.lt.u32", {kOnes, 1}, 0},
                       {"setp.lo.u32", {kOnes, 1}, 0},
                       {"setp.ls.u32", {1, 1}, 1},
                       {"setp.hi.u32", {kOnes, 1}, 1},
                       {"setp.hs.u32", {1, 2}, 0},
                       {"setp.eq.b32", {7, 7}, 1},
                       {"setp.ne.s32", {7, 7}, 0},
                       {"setp.le.s32", {7, 7}, 1},
                       {"setp.gt.s32", {8, 7}, 1},
                       {"setp.ge.s32", {6, 7}, 0}});
  expect_rows("p=hh", {{"setp.lt.s16", {0xffff, 1}, 1},
                       {"setp.gt.u16", {0xffff, 1}, 1},
                       {"setp.eq.b16", {5, 5}, 1}});
  expect_rows("p=dd", {{"setp.lt.s64", {~0ull, 1}, 1},
                       {"setp.gt.u64", {~0ull, 1}, 1},
                       {"setp.ne.b64", {1ull << 40, 0}, 1}});
}

TEST(Compare, FloatsWithNaN) {
  expect_rows("p=rr", {{"setp.lt.f32", {kOne, kTwo}, 1},
                       {"setp.lt.f32", {kOne, kNaN}, 0},
                       {"setp.ltu.f32", {kOne, kNaN}, 1},
                       {"setp.ltu.f32", {kTwo, kOne}, 0},
                       {"setp.ne.f32", {kNaN, kNaN}, 0},
                       {"setp.neu.f32", {kNaN, kNaN}, 1},
                       {"setp.equ.f32", {kOne, kNaN}, 1},
                       {"setp.leu.f32", {kTwo, kOne}, 0},
                       {"setp.gtu.f32", {kTwo, kOne}, 1},
                       {"setp.geu.f32", {kOne, kTwo}, 0},
                       {"setp.num.f32", {kOne, kTwo}, 1},
                       {"setp.num.f32", {kOne, kNaN}, 0},
                       {"setp.nan.f32", {kOne, kNaN}, 1},
                       {"setp.eq.f32", {0, 0x80000000}, 1},  // +0 == -0
                       {"setp.gt.f32", {kTiny, 0}, 1},
                       {"setp.gt.ftz.f32", {kTiny, 0}, 0}});
  expect_rows("p=dd", {{"setp.lt.f64", {0x3ff0000000000000, 0x4000000000000000}, 1},
                       {"setp.nan.f64", {0x7ff8000000000000, 0}, 1}});
  // f16: 1 = 3c00, 2 = 4000, NaN = 7e00; bf16: 1 = 3f80, 2 = 4000, NaN = 7fc0
  expect_rows("p=hh", {{"setp.lt.f16", {0x3c00, 0x4000}, 1},
                       {"setp.gtu.f16", {0x7e00, 0x4000}, 1},
                       {"setp.gt.bf16", {0x4000, 0x3f80}, 1},
                       {"setp.ge.bf16", {0x7fc0, 0x3f80}, 0}});
}

TEST(Compare, SecondTargetIsTheComplement) {
  expect_rows("p|p=rr", {{"setp.lt.s32", {1, 2}, 1, 0}, {"setp.lt.s32", {2, 1}, 0, 1}});
  // p = t op c, q = !t op c
  expect_rows("p|p=rrp", {{"setp.lt.and.s32", {1, 2, 1}, 1, 0},
                          {"setp.lt.and.s32", {1, 2, 0}, 0, 0},
                          {"setp.lt.or.s32", {2, 1, 0}, 0, 1},
                          {"setp.lt.or.s32", {2, 1, 1}, 1, 1},
                          {"setp.lt.xor.s32", {1, 2, 1}, 0, 1}});
  // Packed halves: p of the low, q of the high one. Low 1 < 2, high 2 < 1.
  expect_rows("p|p=rr", {{"setp.lt.f16x2", {0x40003c00, 0x3c004000}, 1, 0},
                         {"setp.gt.bf16x2", {0x40003f80, 0x3f804000}, 0, 1}});
}

TEST(Compare, SetGivesOnesOrOne) {
  expect_rows("r=rr", {{"set.lt.u32.s32", {kOnes, 1}, kOnes},
                       {"set.lt.u32.s32", {1, kOnes}, 0},
                       {"set.eq.s32.f32", {kOne, kOne}, kOnes},
                       {"set.lt.f32.f32", {kOne, kTwo}, kOne},
                       {"set.gt.f32.u32", {2, 1}, kOne},
                       {"set.gt.ftz.u32.f32", {kTiny, 0}, 0},
                       {"set.lt.f16x2.f16x2", {0x40003c00, 0x3c004000}, 0x00003c00},
                       {"set.gt.bf16x2.bf16x2", {0x40003f80, 0x3f804000}, 0x3f800000}});
  expect_rows("r=rrp",
              {{"set.lt.and.u32.s32", {1, 2, 0}, 0}, {"set.lt.or.u32.s32", {2, 1, 1}, kOnes}});
  expect_rows("h=hh", {{"set.lt.f16.f16", {0x3c00, 0x4000}, 0x3c00},
                       {"set.lt.u16.f16", {0x3c00, 0x4000}, 0xffff}});
}

TEST(Compare, Selects) {
  expect_rows("r=rrp", {{"selp.b32", {1, 2, 1}, 1},
                        {"selp.b32", {1, 2, 0}, 2},
                        {"selp.f32", {kOne, kTwo, 0}, kTwo}});
  expect_rows("h=hhp", {{"selp.b16", {1, 2, 1}, 1}});
  expect_rows("d=ddp", {{"selp.b64", {1ull << 40, 2, 1}, 1ull << 40}});
  expect_rows("r=rrr", {{"slct.u32.s32", {1, 2, 0}, 1},
                        {"slct.u32.s32", {1, 2, kOnes}, 2},
                        {"slct.f32.f32", {kOne, kTwo, 0x80000000}, kOne},  // -0 >= 0
                        {"slct.u32.f32", {1, 2, kNaN}, 2},
                        {"slct.u32.f32", {1, 2, kMinusTiny}, 2},
                        {"slct.ftz.u32.f32", {1, 2, kMinusTiny}, 1}});
  expect_rows("d=ddr", {{"slct.u64.s32", {1ull << 40, 2, 5}, 1ull << 40}});
}

}  // namespace
}  // namespace pf::ptxvm
