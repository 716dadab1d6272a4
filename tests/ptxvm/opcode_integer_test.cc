// Truth: values worked by hand from the PTX ISA ("Integer Arithmetic", "Extended-Precision", "Logic
// and Shift").
#include <gtest/gtest.h>

#include "ptxvm/opcode.h"

namespace pf::ptxvm {
namespace {

constexpr uint64_t kMin32 = 0x80000000, kMax32 = 0x7fffffff, kOnes = 0xffffffff;
constexpr uint64_t kMin64 = 1ull << 63, kOnes64 = ~0ull;

TEST(Integer, AddAndSubtractWrap) {
  expect_rows("h=hh", {{"add.u16", {0xffff, 2}, 1},
                       {"add.s16", {0x7fff, 1}, 0x8000},
                       {"sub.u16", {0, 1}, 0xffff},
                       {"sub.s16", {0x8000, 1}, 0x7fff}});
  expect_rows("r=rr", {{"add.u32", {kOnes, 1}, 0},
                       {"add.s32", {kMax32, 1}, kMin32},
                       {"sub.s32", {kMin32, 1}, kMax32},
                       {"sub.u32", {3, 5}, 0xfffffffe}});
  expect_rows("d=dd", {{"add.s64", {kOnes64, 1}, 0}, {"sub.u64", {0, 1}, kOnes64}});
}

TEST(Integer, SaturatingAddClamps) {
  expect_rows("r=rr", {{"add.sat.s32", {kMax32, 1}, kMax32},
                       {"add.sat.s32", {kMin32, kOnes}, kMin32},
                       {"add.sat.s32", {5, 0xfffffffd}, 2},
                       {"sub.sat.s32", {kMin32, 1}, kMin32},
                       {"sub.sat.s32", {kMax32, kOnes}, kMax32}});
}

TEST(Integer, Multiply) {
  // 0x12345678 * 0x9abcdef0 = 0x0b00ea4e 242d2080 unsigned; signed: less 2^32 * 0x12345678.
  expect_rows("r=rr",
              {{"mul.lo.u32", {0x12345678, 0x9abcdef0}, 0x242d2080},
               {"mul.hi.u32", {0x12345678, 0x9abcdef0}, 0x0b00ea4e},
               {"mul.hi.s32", {0x12345678, 0x9abcdef0}, 0x0b00ea4e - 0x12345678 + (1ull << 32)},
               {"mul.lo.s32", {kOnes, 7}, 0xfffffff9}});
  expect_rows("h=hh", {{"mul.lo.u16", {0x1234, 0x10}, 0x2340},
                       {"mul.hi.u16", {0xffff, 0xffff}, 0xfffe},
                       {"mul.hi.s16", {0xffff, 2}, 0xffff},
                       {"mul.lo.s16", {0xffff, 3}, 0xfffd}});
  expect_rows("d=dd", {{"mul.lo.u64", {1ull << 33, 1ull << 31}, 0},
                       {"mul.hi.u64", {1ull << 33, 1ull << 32}, 2},
                       {"mul.hi.u64", {kOnes64, kOnes64}, kOnes64 - 1},
                       {"mul.hi.s64", {kOnes64, kOnes64}, 0},
                       {"mul.lo.s64", {kOnes64, 5}, kOnes64 - 4}});
  expect_rows("r=hh", {{"mul.wide.u16", {0xffff, 0xffff}, 0xfffe0001},
                       {"mul.wide.s16", {0xffff, 0x7fff}, 0xffff8001}});
  expect_rows("d=rr", {{"mul.wide.u32", {kOnes, kOnes}, 0xfffffffe00000001},
                       {"mul.wide.s32", {kOnes, 5}, kOnes64 - 4}});
}

TEST(Integer, MultiplyAdd) {
  expect_rows("r=rrr", {{"mad.lo.s32", {kOnes, 7, 10}, 3},
                        {"mad.lo.u32", {kMin32, 2, 9}, 9},
                        {"mad.hi.u32", {kOnes, kOnes, 3}, 1},
                        {"mad.hi.s32", {kMin32, 2, 5}, 4}});
  expect_rows("h=hhh", {{"mad.lo.u16", {0x100, 0x100, 3}, 3}});
  expect_rows("d=ddd", {{"mad.lo.u64", {1ull << 32, 1ull << 32, 6}, 6},
                        {"mad.hi.u64", {1ull << 32, 1ull << 33, 6}, 8}});
  expect_rows("d=rrd", {{"mad.wide.u32", {kOnes, 2, 2}, 0x200000000},
                        {"mad.wide.s32", {kOnes, 2, 1}, kOnes64}});
  expect_rows("r=hhr",
              {{"mad.wide.u16", {0xffff, 2, 2}, 0x20000}, {"mad.wide.s16", {0xffff, 2, 1}, kOnes}});
}

TEST(Integer, DivideTruncates) {
  expect_rows("r=rr", {{"div.s32", {0xfffffff9, 2}, 0xfffffffd},  // -7 / 2 = -3
                       {"rem.s32", {0xfffffff9, 2}, kOnes},       // -1
                       {"rem.s32", {7, 0xfffffffe}, 1},           // the sign of the dividend
                       {"div.u32", {0xfffffff9, 2}, 0x7ffffffc},
                       {"rem.u32", {0xfffffff9, 2}, 1},
                       {"div.s32", {kMin32, kOnes}, kMin32},
                       {"rem.s32", {kMin32, kOnes}, 0}});
  expect_rows("h=hh", {{"div.s16", {0xfff9, 2}, 0xfffd}, {"rem.u16", {0xfff9, 10}, 9}});
  expect_rows("d=dd", {{"div.s64", {kOnes64 - 6, 2}, kOnes64 - 2},
                       {"rem.u64", {kOnes64, 10}, 5},
                       {"div.u64", {kOnes64, 1ull << 32}, kOnes}});
}

TEST(Integer, MinMaxNegAbsSad) {
  expect_rows("r=rr", {{"min.s32", {kOnes, 1}, kOnes},
                       {"min.u32", {kOnes, 1}, 1},
                       {"max.s32", {kOnes, 1}, 1},
                       {"max.u32", {kOnes, 1}, kOnes}});
  expect_rows("h=hh", {{"min.s16", {0x8000, 1}, 0x8000}, {"max.u16", {0x8000, 1}, 0x8000}});
  expect_rows("d=dd", {{"min.s64", {kMin64, 1}, kMin64}, {"max.u64", {kMin64, 1}, kMin64}});
  expect_rows("r=r", {{"neg.s32", {5}, 0xfffffffb},
                      {"neg.s32", {kMin32}, kMin32},
                      {"abs.s32", {0xfffffffb}, 5},
                      {"abs.s32", {kMin32}, kMin32}});
  expect_rows("h=h", {{"neg.s16", {1}, 0xffff}, {"abs.s16", {0xffff}, 1}});
  expect_rows("d=d", {{"neg.s64", {1}, kOnes64}, {"abs.s64", {kOnes64}, 1}});
  expect_rows("r=rrr", {{"sad.s32", {0xfffffffe, 3, 10}, 15},  // |-2 - 3| + 10
                        {"sad.u32", {0xfffffffe, 3, 10}, 5},   // 2^32 - 5 + 10
                        {"sad.s32", {3, 0xfffffffe, 0}, 5}});
}

TEST(Integer, Logic) {
  expect_rows(
      "r=rr",
      {{"and.b32", {0xc, 0xa}, 0x8}, {"or.b32", {0xc, 0xa}, 0xe}, {"xor.b32", {0xc, 0xa}, 0x6}});
  expect_rows("h=hh", {{"and.b16", {0xff0f, 0x0ff0}, 0x0f00}, {"xor.b16", {0xffff, 1}, 0xfffe}});
  expect_rows("d=dd", {{"or.b64", {1ull << 63, 1}, kMin64 | 1}, {"and.b64", {kOnes64, 5}, 5}});
  expect_rows("r=r", {{"not.b32", {0}, kOnes}, {"cnot.b32", {0}, 1}, {"cnot.b32", {7}, 0}});
  expect_rows("h=h", {{"not.b16", {0xff}, 0xff00}, {"cnot.b16", {0}, 1}});
  expect_rows("d=d", {{"not.b64", {1}, kOnes64 - 1}});
  expect_rows("p=pp", {{"and.pred", {1, 0}, 0}, {"or.pred", {1, 0}, 1}, {"xor.pred", {1, 1}, 0}});
  expect_rows("p=p", {{"not.pred", {0}, 1}, {"not.pred", {1}, 0}});
}

TEST(Integer, ShiftsClampTheirAmount) {
  expect_rows("r=rr", {{"shl.b32", {1, 31}, kMin32},
                       {"shl.b32", {1, 32}, 0},
                       {"shl.b32", {1, kOnes}, 0},
                       {"shr.u32", {kMin32, 31}, 1},
                       {"shr.u32", {kMin32, 32}, 0},
                       {"shr.s32", {kMin32, 31}, kOnes},
                       {"shr.s32", {kMin32, 99}, kOnes},
                       {"shr.b32", {kMin32, 4}, 0x08000000}});
  expect_rows(
      "h=hr",
      {{"shl.b16", {1, 16}, 0}, {"shr.s16", {0x8000, 20}, 0xffff}, {"shr.u16", {0x8000, 15}, 1}});
  expect_rows(
      "d=dr",
      {{"shl.b64", {1, 63}, kMin64}, {"shl.b64", {1, 64}, 0}, {"shr.s64", {kMin64, 64}, kOnes64}});
}

TEST(Integer, FunnelShift) {
  const uint64_t a = 0x11223344, b = 0xaabbccdd;
  expect_rows("r=rrr", {{"shf.l.wrap.b32", {a, b, 8}, 0xbbccdd11},
                        {"shf.l.wrap.b32", {a, b, 40}, 0xbbccdd11},
                        {"shf.l.clamp.b32", {a, b, 40}, a},
                        {"shf.r.wrap.b32", {a, b, 8}, 0xdd112233},
                        {"shf.r.wrap.b32", {a, b, 32}, a},
                        {"shf.r.clamp.b32", {a, b, 32}, b},
                        {"shf.l.clamp.b32", {a, b, 0}, b}});
}

TEST(Integer, Lop3TableIsIndexedByABC) {
  // Lane bits of a, b, c run through all eight triples; the result is the table itself.
  const std::vector<uint64_t> abc = {0xf0, 0xcc, 0xaa};
  for (const char* op : {"lop3.b32 @, 0x80", "lop3.b32 @, 0xea", "lop3.b32 @, 0x96"}) {
    uint64_t table = std::stoul(std::string(op).substr(12), nullptr, 0);
    expect_rows("r=rrr", {{op, abc, table}});
  }
  expect_rows("r=rrr", {{"lop3.b32 @, 0x01", {0, 0, 0}, kOnes}});
}

TEST(Integer, Permute) {
  const uint64_t a = 0x33221100, b = 0x77665544;
  expect_rows("r=rrr", {{"prmt.b32", {a, b, 0x3210}, a},
                        {"prmt.b32", {a, b, 0x0123}, 0x00112233},
                        {"prmt.b32", {a, b, 0x7410}, 0x77441100},
                        {"prmt.b32", {0x80ff7f00, b, 0xba98}, 0xffff0000},  // the sign replicated
                        {"prmt.b32.f4e", {a, b, 1}, 0x44332211},
                        {"prmt.b32.b4e", {a, b, 1}, 0x66770011},
                        {"prmt.b32.rc8", {a, b, 2}, 0x22222222},
                        {"prmt.b32.ecl", {a, b, 1}, 0x33221111},
                        {"prmt.b32.ecr", {a, b, 2}, 0x22221100},
                        {"prmt.b32.rc16", {a, b, 1}, 0x33223322}});
}

TEST(Integer, BitFields) {
  expect_rows("r=rrr", {{"bfe.u32", {0x12345678, 8, 8}, 0x56},
                        {"bfe.s32", {0x0000f000, 8, 8}, 0xfffffff0},
                        {"bfe.s32", {0xf0000000, 28, 8}, kOnes},  // past the top: the sign
                        {"bfe.u32", {0xf0000000, 28, 8}, 0xf},
                        {"bfe.s32", {0xf0000000, 40, 3}, kOnes},
                        {"bfe.u32", {kOnes, 4, 0}, 0},
                        {"bfe.s32", {kOnes, 4, 0}, 0},
                        {"bfe.u32", {0x12345678, 0x108, 0x108}, 0x56}});  // low byte of pos and len
  expect_rows("d=drr", {{"bfe.u64", {0x123456789abcdef0, 32, 16}, 0x5678},
                        {"bfe.s64", {kMin64, 60, 4}, kOnes64 - 7}});
  expect_rows("r=rrrr", {{"bfi.b32", {0xab, 0x11111111, 8, 8}, 0x1111ab11},
                         {"bfi.b32", {0xff, 0, 28, 8}, 0xf0000000},
                         {"bfi.b32", {0xff, 0x5, 40, 8}, 0x5},
                         {"bfi.b32", {0xff, 0x5, 0, 0}, 0x5},
                         {"bfi.b32", {0x123, 0x5, 0, 32}, 0x123}});
  expect_rows("d=ddrr", {{"bfi.b64", {0xab, 0, 56, 8}, 0xab00000000000000}});
}

TEST(Integer, CountsAndFinds) {
  expect_rows("r=r", {{"popc.b32", {0xf0f0}, 8},
                      {"clz.b32", {0}, 32},
                      {"clz.b32", {0x00010000}, 15},
                      {"brev.b32", {0x00000003}, 0xc0000000},
                      {"bfind.u32", {0x00010000}, 16},
                      {"bfind.u32", {0}, kOnes},
                      {"bfind.s32", {kOnes}, kOnes},
                      {"bfind.s32", {0xfffffffe}, 0},  // the highest bit unlike the sign
                      {"bfind.shiftamt.u32", {0x00010000}, 15},
                      {"bfind.shiftamt.u32", {0}, kOnes}});
  expect_rows("r=d", {{"popc.b64", {kOnes64}, 64},
                      {"clz.b64", {1}, 63},
                      {"bfind.u64", {kMin64}, 63},
                      {"bfind.s64", {kMin64}, 62}});
  expect_rows("d=d", {{"brev.b64", {1}, kMin64}});
}

TEST(Integer, DotProducts) {
  // a = (1, -2, 3, -4), b = (10, 20, 30, 40) from the lowest byte.
  const uint64_t a = 0xfc03fe01, b = 0x281e140a;
  expect_rows("r=rrr", {{"dp4a.s32.s32", {a, b, 100}, 0},  // 100 + 10 - 40 + 90 - 160
                        {"dp4a.u32.u32", {a, b, 0}, 10 + 254 * 20 + 90 + 252 * 40},
                        {"dp4a.s32.u32", {a, 0xff000000, 0}, (1ull << 32) - 4 * 255},
                        {"dp4a.u32.s32", {0xff000000, a, 0}, (1ull << 32) - 4 * 255},
                        // halves of a: 0xfe01 = -511, 0xfc03 = -1021; bytes of b by pairs
                        {"dp2a.lo.s32.s32", {a, b, 0}, (1ull << 32) - 511 * 10 - 1021 * 20},
                        {"dp2a.hi.s32.s32", {a, b, 0}, (1ull << 32) - 511 * 30 - 1021 * 40},
                        {"dp2a.lo.u32.u32", {a, b, 1}, 1 + 0xfe01 * 10 + 0xfc03 * 20}});
}

// 128 bits: (lo, hi) + (lo, hi) over two 64-bit or four 32-bit limbs.
TEST(Integer, CarryChains) {
  auto out = run({.text = R"(
    add.cc.u32 %r1, 0xffffffff, 1;      // 0, carry
    addc.cc.u32 %r2, 0xffffffff, 0;     // 0, carry
    addc.u32 %r3, 5, 6;                 // 12
    addc.u32 %r4, 5, 6;                 // the carry is still set: 12
    sub.cc.u32 %r5, 0, 1;               // -1, borrow
    subc.cc.u32 %r6, 10, 3;             // 6, no borrow
    subc.u32 %r7, 10, 3;                // 7
    mad.lo.cc.u32 %r8, 0xffffffff, 2, 3;   // 2 * (2^32 - 1) + 3: low fffffffe + 3 = 1, carry
    madc.hi.u32 %r9, 0xffffffff, 2, 4;     // high 1 + 4 + carry = 6
    add.cc.u32 %r10, 1, 1;              // no carry
    madc.lo.cc.u32 %r11, 3, 4, 5;       // 17
    addc.u32 %r12, 0, 0;                // 0
    add.cc.u64 %d1, 0xffffffffffffffff, 1;
    addc.u64 %d2, 1, 1;                 // 3
    cvt.u32.u64 %r13, %d2;
    mad.hi.cc.s32 %r14, 0xffffffff, 5, 1;  // high of -5 is -1; -1 + 1 = 0, carry
    addc.u32 %r15, 0, 0;                // 1
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra $done;
    st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};
    st.global.v4.u32 [%out+16], {%r5, %r6, %r7, %r8};
    st.global.v4.u32 [%out+32], {%r9, %r10, %r11, %r12};
    st.global.v2.u32 [%out+48], {%r13, %r14};
    st.global.u32 [%out+56], %r15;
    $done:)"});
  const std::vector<uint32_t> want = {0, 0, 12, 12, 0xffffffff, 6, 7, 1, 6, 2, 17, 0, 3, 0, 1};
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(out[i], want[i]) << "step " << i;
}

// The carry is per lane: lanes below 16 add to all ones, the others to zero.
TEST(Integer, CarryIsPerLane) {
  auto out = run({.text = std::string(R"(
    setp.lt.u32 %p1, %lane, 16;
    selp.b32 %r1, 0xffffffff, 0, %p1;
    add.cc.u32 %r2, %r1, 1;
    addc.u32 %r0, 0, 0;)") +
                          kStore});
  for (size_t l = 0; l < 32; ++l) EXPECT_EQ(out[l], l < 16 ? 1u : 0u) << l;
}

}  // namespace
}  // namespace pf::ptxvm
