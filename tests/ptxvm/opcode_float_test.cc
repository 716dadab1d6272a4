// Truth: values worked by hand from the PTX ISA ("Floating Point", "Half Precision"); for the
// approximations (exact at the arguments used) the mathematical value.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ptxvm/opcode.h"

namespace pf::ptxvm {
namespace {

uint64_t b(float v) { return std::bit_cast<uint32_t>(v); }
uint64_t b(double v) { return std::bit_cast<uint64_t>(v); }
// One unit in the last place of 1, and the pattern of NaN that PTX calls canonical.
constexpr float kUlp = 0x1p-23f;
constexpr uint64_t kNaN = 0x7fffffff, kInf = 0x7f800000, kMinusZero = 0x80000000, kTiny = 1;

TEST(Float32, AddRoundsAsAsked) {
  // 1 + 2^-24 lies half-way between 1 and 1 + ulp; 1 + 3 * 2^-25 above that.
  const uint64_t one = b(1.0f), half = b(0x1p-24f), more = b(0x1.8p-24f);
  expect_rows("r=rr", {{"add.f32", {one, half}, one},
                       {"add.rn.f32", {b(1 + kUlp), half}, b(1 + 2 * kUlp)},  // to even
                       {"add.rn.f32", {one, more}, b(1 + kUlp)},
                       {"add.rz.f32", {one, more}, one},
                       {"add.rm.f32", {one, more}, one},
                       {"add.rp.f32", {one, half}, b(1 + kUlp)},
                       {"add.rz.f32", {b(-1.0f), b(-0x1.8p-24f)}, b(-1.0f)},
                       {"add.rm.f32", {b(-1.0f), b(-0x1p-24f)}, b(-1 - kUlp)},
                       {"sub.rp.f32", {one, b(-0x1p-24f)}, b(1 + kUlp)},
                       {"sub.f32", {one, one}, 0},
                       {"sub.rm.f32", {one, one}, kMinusZero}});
}

TEST(Float32, MultiplyDivideFma) {
  // (1 + ulp)^2 = 1 + 2 ulp + ulp^2: the last part is lost by mul, kept by fma.
  const uint64_t x = b(1 + kUlp);
  expect_rows("r=rr", {{"mul.f32", {x, x}, b(1 + 2 * kUlp)},
                       {"mul.rp.f32", {x, x}, b(1 + 3 * kUlp)},
                       {"mul.f32", {b(2.0f), kInf}, kInf},
                       {"mul.f32", {0, kInf}, kNaN},
                       {"div.rn.f32", {b(1.0f), b(3.0f)}, 0x3eaaaaab},
                       {"div.rz.f32", {b(1.0f), b(3.0f)}, 0x3eaaaaaa},
                       {"div.full.f32", {b(6.0f), b(3.0f)}, b(2.0f)},
                       {"div.approx.f32", {b(6.0f), b(3.0f)}, b(2.0f)},
                       {"div.rn.f32", {b(1.0f), 0}, kInf}});
  expect_rows("r=rrr", {{"fma.rn.f32", {x, x, b(-1 - 2 * kUlp)}, b(0x1p-46f)},
                        {"fma.rz.f32", {x, x, 0}, b(1 + 2 * kUlp)},
                        {"fma.rp.f32", {x, x, 0}, b(1 + 3 * kUlp)},
                        {"mad.rn.f32", {b(2.0f), b(3.0f), b(1.0f)}, b(7.0f)}});
}

TEST(Float32, FlushesAndSaturates) {
  expect_rows("r=rr", {{"add.f32", {kTiny, 0}, kTiny},
                       {"add.ftz.f32", {kTiny, 0}, 0},
                       {"mul.ftz.f32", {b(0x1p-100f), b(-0x1p-40f)}, kMinusZero},
                       {"mul.f32", {b(0x1p-100f), b(0x1p-40f)}, b(0x1p-140f)},
                       {"add.sat.f32", {b(0.75f), b(0.5f)}, b(1.0f)},
                       {"add.sat.f32", {b(0.75f), b(-2.0f)}, 0},
                       {"mul.sat.f32", {0, kInf}, 0},  // NaN saturates to +0
                       {"mul.sat.f32", {kMinusZero, b(1.0f)}, 0}});
  expect_rows("r=rrr", {{"fma.rn.sat.f32", {b(2.0f), b(3.0f), b(1.0f)}, b(1.0f)},
                        {"fma.rn.ftz.f32", {kTiny, b(1.0f), b(1.0f)}, b(1.0f)}});
}

TEST(Float32, MinMaxPreferNumbersAndOrderZeros) {
  expect_rows("r=rr", {{"min.f32", {b(1.0f), kNaN}, b(1.0f)},
                       {"max.f32", {kNaN, b(1.0f)}, b(1.0f)},
                       {"max.f32", {kNaN, kNaN}, kNaN},
                       {"min.NaN.f32", {b(1.0f), 0x7fc00001}, kNaN},
                       {"max.NaN.f32", {b(1.0f), b(2.0f)}, b(2.0f)},
                       {"min.f32", {0, kMinusZero}, kMinusZero},
                       {"max.f32", {kMinusZero, 0}, 0},
                       {"max.f32", {0, kMinusZero}, 0},
                       {"max.f32", {b(-1.0f), b(3.0f)}, b(3.0f)},
                       {"max.ftz.f32", {kTiny, b(-1.0f)}, 0}});
}

TEST(Float32, SignsAndClasses) {
  expect_rows("r=r", {{"neg.f32", {0}, kMinusZero},
                      {"abs.f32", {b(-2.5f)}, b(2.5f)},
                      {"neg.ftz.f32", {kTiny}, kMinusZero},
                      {"abs.ftz.f32", {0x80000001}, 0}});
  expect_rows("r=rr", {{"copysign.f32", {b(-1.0f), b(2.0f)}, b(-2.0f)},
                       {"copysign.f32", {b(1.0f), b(-2.0f)}, b(2.0f)}});
  expect_rows("d=dd", {{"copysign.f64", {b(-1.0), b(2.0)}, b(-2.0)}});
  expect_rows("p=r", {{"testp.finite.f32", {b(1.0f)}, 1},
                      {"testp.finite.f32", {kInf}, 0},
                      {"testp.infinite.f32", {kInf}, 1},
                      {"testp.number.f32", {kInf}, 1},
                      {"testp.notanumber.f32", {kNaN}, 1},
                      {"testp.normal.f32", {kTiny}, 0},
                      {"testp.subnormal.f32", {kTiny}, 1}});
  expect_rows("p=d", {{"testp.normal.f64", {b(1.0)}, 1}, {"testp.number.f64", {~0ull}, 0}});
}

TEST(Float32, FunctionsAtExactArguments) {
  expect_rows("r=r", {{"sqrt.rn.f32", {b(2.25f)}, b(1.5f)},
                      {"sqrt.rz.f32", {b(2.0f)}, 0x3fb504f3},  // 1.41421356...: ...f3.3
                      {"sqrt.rp.f32", {b(2.0f)}, 0x3fb504f4},
                      {"sqrt.approx.f32", {b(4.0f)}, b(2.0f)},
                      {"sqrt.rn.f32", {b(-1.0f)}, kNaN},
                      {"rcp.rn.f32", {b(3.0f)}, 0x3eaaaaab},
                      {"rcp.rz.f32", {b(3.0f)}, 0x3eaaaaaa},
                      {"rcp.approx.ftz.f32", {b(4.0f)}, b(0.25f)},
                      {"rcp.approx.ftz.f32", {0x80000001}, 0xff800000},
                      {"rsqrt.approx.f32", {b(4.0f)}, b(0.5f)},
                      {"rsqrt.approx.f32", {kMinusZero}, 0xff800000},
                      {"rsqrt.approx.f32", {kInf}, 0},
                      {"ex2.approx.f32", {b(-3.0f)}, b(0.125f)},
                      {"ex2.approx.ftz.f32", {b(-140.0f)}, 0},
                      {"ex2.approx.f32", {0xff800000}, 0},
                      {"lg2.approx.f32", {b(8.0f)}, b(3.0f)},
                      {"lg2.approx.f32", {0}, 0xff800000},
                      {"lg2.approx.f32", {b(-1.0f)}, kNaN},
                      {"sin.approx.f32", {0}, 0},
                      {"cos.approx.f32", {0}, b(1.0f)},
                      {"tanh.approx.f32", {kInf}, b(1.0f)},
                      {"tanh.approx.f32", {kMinusZero}, kMinusZero}});
}

TEST(Float64, RoundsAsAsked) {
  const double u = 0x1p-52;
  expect_rows("d=dd", {{"add.f64", {b(1.0), b(0x1p-53)}, b(1.0)},
                       {"add.rp.f64", {b(1.0), b(0x1p-53)}, b(1.0 + u)},
                       {"sub.rz.f64", {b(1.0), b(0x1p-60)}, b(1.0 - 0x1p-53)},
                       {"mul.rm.f64", {b(-1 - u), b(1 + u)}, b(-1 - 3 * u)},
                       {"div.rn.f64", {b(1.0), b(4.0)}, b(0.25)},
                       {"min.f64", {b(-1.0), b(1.0)}, b(-1.0)},
                       {"max.f64", {b(-1.0), b(1.0)}, b(1.0)}});
  expect_rows("d=ddd", {{"fma.rn.f64", {b(1 + u), b(1 + u), b(-1 - 2 * u)}, b(0x1p-104)}});
  expect_rows("d=d", {{"sqrt.rn.f64", {b(2.25)}, b(1.5)},
                      {"rcp.rn.f64", {b(-4.0)}, b(-0.25)},
                      {"neg.f64", {b(1.0)}, b(-1.0)},
                      {"abs.f64", {b(-1.0)}, b(1.0)}});
}

// f16: 1 = 3c00, ulp of 1 = 2^-10; 2^-11 = 1000; 65504 = 7bff; least subnormal 2^-24 = 0001.
TEST(Half, ArithmeticRoundsToNearestEven) {
  expect_rows("h=hh", {{"add.f16", {0x3c00, 0x1000}, 0x3c00},
                       {"add.rn.f16", {0x3c01, 0x1000}, 0x3c02},
                       {"sub.f16", {0x3c00, 0x4000}, 0xbc00},
                       {"mul.f16", {0x7bff, 0x4000}, 0x7c00},  // 131008 overflows
                       {"mul.f16", {0x0001, 0x3800}, 0x0000},  // 2^-25: to even
                       {"mul.f16", {0x0003, 0x3800}, 0x0002},  // 1.5 subnormals: to even
                       {"add.sat.f16", {0x3c00, 0x3c00}, 0x3c00},
                       {"mul.ftz.f16", {0x0001, 0x3c00}, 0x0000},  // subnormals flush
                       {"mul.ftz.f16", {0x8001, 0x3c00}, 0x8000},
                       {"min.f16", {0x3c00, 0x7e00}, 0x3c00},
                       {"max.NaN.f16", {0x3c00, 0x7e00}, 0x7fff},
                       {"max.f16", {0x8000, 0x0000}, 0x0000}});
  // 2049 is no f16: 2048 * 1 + 1 rounds to even, and so does the double rounding trap:
  // (1 + 2^-10)^2 - 1 = 2^-9 + 2^-20, whose nearest f16 is 2^-9 + 2^-19 * 0 (ulp 2^-19): to even.
  expect_rows("h=hhh", {{"fma.rn.f16", {0x6800, 0x3c00, 0x3c00}, 0x6800},
                        {"fma.rn.f16", {0x3c01, 0x3c01, 0xbc00}, 0x1800},
                        {"fma.rn.relu.f16", {0xbc00, 0x3c00, 0x0000}, 0x0000},
                        {"fma.rn.sat.f16", {0x4000, 0x4000, 0x0000}, 0x3c00}});
  expect_rows("h=h", {{"neg.f16", {0x3c00}, 0xbc00},
                      {"abs.f16", {0xbc00}, 0x3c00},
                      {"ex2.approx.f16", {0x4000}, 0x4400},
                      {"tanh.approx.f16", {0x7c00}, 0x3c00}});
}

TEST(Half, PairsAreTwoHalves) {
  expect_rows("r=rr", {{"add.f16x2", {0x3c004000, 0x3c003c00}, 0x40004200},
                       {"sub.f16x2", {0x3c004000, 0x3c003c00}, 0x00003c00},
                       {"mul.f16x2", {0x40003c00, 0x44004000}, 0x48004000},
                       {"min.f16x2", {0x3c004000, 0x40003c00}, 0x3c003c00},
                       {"max.f16x2", {0x3c004000, 0x40003c00}, 0x40004000}});
  expect_rows("r=rrr", {{"fma.rn.f16x2", {0x40003c00, 0x40004000, 0x3c003c00}, 0x45004200},
                        {"fma.rn.relu.f16x2", {0xc0003c00, 0x40004000, 0}, 0x00004000}});
  expect_rows("r=r", {{"neg.f16x2", {0x3c004000}, 0xbc00c000},
                      {"abs.f16x2", {0xbc00c000}, 0x3c004000},
                      {"ex2.approx.f16x2", {0x3c000000}, 0x40003c00}});
}

// bf16: 1 = 3f80, ulp of 1 = 2^-7; 2^-8 = 3b80.
TEST(Half, BrainFloats) {
  expect_rows("h=hh", {{"add.rn.bf16", {0x3f80, 0x3b80}, 0x3f80},
                       {"add.rn.bf16", {0x3f81, 0x3b80}, 0x3f82},
                       {"mul.rn.bf16", {0x4000, 0x4040}, 0x40c0},
                       {"min.bf16", {0x3f80, 0x7fc0}, 0x3f80},
                       {"max.bf16", {0x3f80, 0x4000}, 0x4000}});
  expect_rows("h=hhh", {{"fma.rn.bf16", {0x4000, 0x4040, 0x3f80}, 0x40e0},
                        // (1 + 2^-7)^2 - 1 = 2^-6 + 2^-14; the ulp of 2^-6 is 2^-13: to even
                        {"fma.rn.bf16", {0x3f81, 0x3f81, 0xbf80}, 0x3c80}});
  expect_rows("h=h", {{"neg.bf16", {0x3f80}, 0xbf80}, {"abs.bf16", {0xbf80}, 0x3f80}});
  expect_rows("r=rr", {{"add.rn.bf16x2", {0x3f804000, 0x3f803f80}, 0x40004040},
                       {"sub.rn.bf16x2", {0x3f804000, 0x3f803f80}, 0x00003f80},
                       {"mul.rn.bf16x2", {0x40003f80, 0x40804000}, 0x41004000},
                       {"max.bf16x2", {0x3f804000, 0x40003f80}, 0x40004000}});
  expect_rows("r=rrr", {{"fma.rn.bf16x2", {0x40003f80, 0x40004000, 0x3f803f80}, 0x40a04040}});
  expect_rows("r=r",
              {{"neg.bf16x2", {0x3f804000}, 0xbf80c000}, {"abs.bf16x2", {0xbf80c000}, 0x3f804000}});
}

}  // namespace
}  // namespace pf::ptxvm
