// Truth: the integer matrix product, with fragments packed by the formulas of the PTX ISA ("Matrix
// Fragments for mma.m16n8k*"; groupID = lane >> 2, threadID_in_group = lane % 4).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "base/dtype.h"
#include "ptxvm/opcode.h"

namespace pf::ptxvm {
namespace {

using Words = std::vector<uint32_t>;
using Matrix = std::vector<std::vector<int>>;

Matrix random_matrix(size_t rows, size_t columns, uint32_t seed, int low, int high) {
  Matrix m(rows, std::vector<int>(columns));
  for (auto& r : m)
    for (int& v : r) {
      seed = seed * 1664525u + 1013904223u;
      v = low + static_cast<int>((seed >> 8) % static_cast<uint32_t>(high - low + 1));
    }
  return m;
}

// What the ISA says of element i of a lane's fragment.
struct Place {
  int row, column;
};
Place place_a16(int k, int lane, int i) {  // .f16 and .bf16
  int group = lane >> 2, thread = lane % 4;
  if (k == 8) return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
  bool upper = i < 2 || (4 <= i && i < 6);
  return {upper ? group : group + 8, i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
}
Place place_b16(int lane, int i) {
  int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group};
}
Place place_a8(int k, int lane, int i) {  // .s8 and .u8
  int group = lane >> 2, thread = lane % 4;
  if (k == 16) return {i < 4 ? group : group + 8, thread * 4 + (i & 3)};
  bool upper = i < 4 || (8 <= i && i < 12);
  return {upper ? group : group + 8, i < 8 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16};
}
Place place_b8(int lane, int i) {
  int group = lane >> 2, thread = lane % 4;
  return {i < 4 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16, group};
}
Place place_c(int lane, int i) {
  int group = lane >> 2, thread = lane % 4;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

struct Shape {
  std::string text;  // "m16n8k16.row.col.f32.f16.f16.f32"
  int k;
  bool bytes;                // else halves
  uint32_t (*pattern)(int);  // of an element of A and B
  bool half_sum;             // C and D are f16
  bool integer_sum;
};
uint32_t of_f16(int v) { return to_f16(static_cast<float>(v)).bits; }
uint32_t of_bf16(int v) { return to_bf16(static_cast<float>(v)).bits; }
uint32_t of_byte(int v) { return static_cast<uint32_t>(v) & 255; }

// Runs D = A B + C with registers from memory: per lane 16 words, A at 0, B at 4, C at 8.
Words multiply(const Shape& s, const Matrix& a, const Matrix& b, const Matrix& c) {
  int n_a = s.bytes ? s.k / 8 : s.k / 4, n_b = n_a / 2, per = s.bytes ? 4 : 2;
  Words in(32 * 16);
  for (int l = 0; l < 32; ++l) {
    uint32_t* w = &in[static_cast<size_t>(l) * 16];
    for (int i = 0; i < n_a * per; ++i) {
      Place p = s.bytes ? place_a8(s.k, l, i) : place_a16(s.k, l, i);
      w[i / per] |= s.pattern(a[size_t(p.row)][size_t(p.column)]) << (32 / per * (i % per));
    }
    for (int i = 0; i < n_b * per; ++i) {
      Place p = s.bytes ? place_b8(l, i) : place_b16(l, i);
      w[4 + i / per] |= s.pattern(b[size_t(p.row)][size_t(p.column)]) << (32 / per * (i % per));
    }
    for (int i = 0; i < 4; ++i) {
      Place p = place_c(l, i);
      int v = c[size_t(p.row)][size_t(p.column)];
      if (s.half_sum)
        w[8 + i / 2] |= of_f16(v) << (16 * (i % 2));
      else
        w[8 + i] = s.integer_sum ? static_cast<uint32_t>(v) : std::bit_cast<uint32_t>(float(v));
    }
  }
  auto list = [](int first, int n) {
    std::string t = "{";
    for (int i = 0; i < n; ++i) t += (i ? ", %r" : "%r") + std::to_string(first + i);
    return t + "}";
  };
  int n_c = s.half_sum ? 2 : 4;
  return run(
      {.text = "mul.wide.u32 %d1, %lane, 64; add.u64 %d2, %d1, %in; add.u64 %d3, %d1, %out;\n"
               "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d2];\n"
               "ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%d2+16];\n"
               "ld.global.v4.b32 {%r9, %r10, %r11, %r12}, [%d2+32];\n"
               "mma.sync.aligned." +
               s.text + " " + list(13, n_c) + ", " + list(1, n_a) + ", " + list(5, n_b) + ", " +
               list(9, n_c) +
               ";\n"
               "st.global.v4.b32 [%d3], {%r13, %r14, %r15, %r16};",
       .in = in,
       .out_words = 32 * 16});
}
void expect_product(const Shape& s, const Matrix& a, const Matrix& b, const Matrix& c) {
  Words out = multiply(s, a, b, c);
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i) {
      Place p = place_c(l, i);
      int want = c[size_t(p.row)][size_t(p.column)];
      for (int k = 0; k < s.k; ++k)
        want += a[size_t(p.row)][size_t(k)] * b[size_t(k)][size_t(p.column)];
      uint32_t w = out[size_t(l) * 16 + size_t(s.half_sum ? i / 2 : i)];
      float got = s.half_sum      ? to_float(f16{static_cast<uint16_t>(w >> (16 * (i % 2)))})
                  : s.integer_sum ? static_cast<float>(static_cast<int32_t>(w))
                                  : std::bit_cast<float>(w);
      ASSERT_EQ(got, static_cast<float>(want)) << s.text << " lane " << l << " element " << i;
    }
}

TEST(Mma, FragmentsAreWhereTheIsaPutsThem) {
  const Shape shapes[] = {
      {"m16n8k16.row.col.f32.f16.f16.f32", 16, false, of_f16, false, false},
      {"m16n8k8.row.col.f32.f16.f16.f32", 8, false, of_f16, false, false},
      {"m16n8k16.row.col.f16.f16.f16.f16", 16, false, of_f16, true, false},
      {"m16n8k8.row.col.f16.f16.f16.f16", 8, false, of_f16, true, false},
      {"m16n8k16.row.col.f32.bf16.bf16.f32", 16, false, of_bf16, false, false},
      {"m16n8k8.row.col.f32.bf16.bf16.f32", 8, false, of_bf16, false, false},
      {"m16n8k16.row.col.s32.s8.s8.s32", 16, true, of_byte, false, true},
      {"m16n8k32.row.col.s32.s8.s8.s32", 32, true, of_byte, false, true},
  };
  for (const Shape& s : shapes)
    for (uint32_t seed = 1; seed <= 3; ++seed)
      expect_product(s, random_matrix(16, size_t(s.k), seed, -7, 7),
                     random_matrix(size_t(s.k), 8, seed + 10, -7, 7),
                     random_matrix(16, 8, seed + 20, -50, 50));
}
TEST(Mma, BytesOfEitherSign) {
  Matrix c = random_matrix(16, 8, 5, -1000, 1000);
  Matrix negative = random_matrix(16, 32, 6, -128, 127),
         positive = random_matrix(16, 32, 7, 0, 255);
  Matrix b_negative = random_matrix(32, 8, 8, -128, 127),
         b_positive = random_matrix(32, 8, 9, 0, 255);
  auto shape = [](const std::string& types) {
    return Shape{"m16n8k32.row.col.s32." + types + ".s32", 32, true, of_byte, false, true};
  };
  expect_product(shape("u8.s8"), positive, b_negative, c);
  expect_product(shape("s8.u8"), negative, b_positive, c);
  expect_product(shape("u8.u8"), positive, b_positive, c);
}
TEST(Mma, IntegerSumsWrapOrSaturate) {
  Matrix a(16, std::vector<int>(16, 127)), b(16, std::vector<int>(8, 127));
  Matrix c(16, std::vector<int>(8, 0x7ffffff0));
  Shape s{"m16n8k16.row.col.s32.s8.s8.s32", 16, true, of_byte, false, true};
  EXPECT_EQ(multiply(s, a, b, c)[0], 0x7ffffff0u + 16 * 127 * 127);
  s.text = "m16n8k16.row.col.satfinite.s32.s8.s8.s32";
  EXPECT_EQ(multiply(s, a, b, c)[0], 0x7fffffffu);
}
// The documented order: 8 products are summed before the accumulator takes them. 2^24 + 1 is no
// f32, so eight ones added one by one would be lost; k16 is two such steps.
TEST(Mma, EightProductsAreSummedFirst) {
  Matrix c(16, std::vector<int>(8, 1 << 24));
  for (int k : {8, 16}) {
    Shape s{
        "m16n8k" + std::to_string(k) + ".row.col.f32.f16.f16.f32", k, false, of_f16, false, false};
    Matrix a(16, std::vector<int>(size_t(k), 1)), b(size_t(k), std::vector<int>(8, 1));
    EXPECT_EQ(std::bit_cast<float>(multiply(s, a, b, c)[0]), 16777216.0f + float(k));
  }
  // One product of 1 in each step of 8: each step's 1 is lost (to even).
  Matrix a(16, std::vector<int>(16, 0)), b(16, std::vector<int>(8, 1));
  for (auto& row : a) row[0] = row[8] = 1;
  Shape s{"m16n8k16.row.col.f32.f16.f16.f32", 16, false, of_f16, false, false};
  EXPECT_EQ(std::bit_cast<float>(multiply(s, a, b, c)[0]), 16777216.0f);
}
TEST(Mma, F16SumsRoundOnce) {
  // 2048 + 1 is no f16: to even.
  Matrix a(16, std::vector<int>(16, 0)), b(16, std::vector<int>(8, 1)),
      c(16, std::vector<int>(8, 2048));
  for (auto& row : a) row[3] = 1;
  Shape s{"m16n8k16.row.col.f16.f16.f16.f16", 16, false, of_f16, true, false};
  EXPECT_EQ(multiply(s, a, b, c)[0], 0x68006800u);
}

// Shared memory holds halves 0, 1, 2...; row r of matrix q starts at half 64 q + 8 r.
Words load_matrices(const std::string& form, int n) {
  std::string list = "{%r1";
  for (int i = 2; i <= n; ++i) list += ", %r" + std::to_string(i);
  std::string fill;
  for (int i = 0; i < 4; ++i) {  // lane l writes halves 2 l, 2 l + 1 of matrix i
    fill += "mad.lo.u32 %r20, %lane, 0x00020002, " + std::to_string(0x00010000 + 64 * i * 0x10001) +
            ";\n";
    fill += "mov.u32 %r21, smem; mad.lo.u32 %r21, %lane, 4, %r21; st.shared.b32 [%r21+" +
            std::to_string(128 * i) + "], %r20;\n";
  }
  return run({.text = fill +
                      "bar.warp.sync 0xffffffff;\nmov.u32 %r1, 0; mov.u32 %r2, 0; mov.u32 %r3, 0; "
                      "mov.u32 %r4, 0;\nmov.u32 %r22, smem; mad.lo.u32 %r22, %lane, 16, %r22;\n"
                      "ldmatrix.sync.aligned.m8n8." +
                      form + ".b16 " + list +
                      "}, [%r22];\n"
                      "mul.wide.u32 %d1, %lane, 16; add.u64 %d1, %d1, %out;\n"
                      "st.global.v4.b32 [%d1], {%r1, %r2, %r3, %r4};",
              .out_words = 128});
}
// ISA: lane l gets of matrix q, row l / 4, the elements 2 (l % 4) and the next; of the transpose
// with .trans. Element (r, c) of matrix q is 64 q + 8 r + c.
TEST(LoadMatrix, FragmentsPlainAndTransposed) {
  for (int n : {1, 2, 4}) {
    Words plain = load_matrices("x" + std::to_string(n) + ".shared", n);
    Words trans = load_matrices("x" + std::to_string(n) + ".trans.shared", n);
    for (uint32_t l = 0; l < 32; ++l)
      for (uint32_t q = 0; q < 4; ++q) {
        uint32_t row = l / 4, column = 2 * (l % 4);
        uint32_t first = 64 * q + 8 * row + column;
        uint32_t first_t = 64 * q + 8 * column + row, second_t = first_t + 8;
        bool here = q < static_cast<uint32_t>(n);
        EXPECT_EQ(plain[4 * l + q], here ? first | (first + 1) << 16 : 0)
            << n << " " << l << " " << q;
        EXPECT_EQ(trans[4 * l + q], here ? first_t | second_t << 16 : 0)
            << n << " " << l << " " << q;
      }
  }
}
TEST(LoadMatrix, MoveMatrixTransposes) {
  Words out = run({.text = std::string(R"(
    mad.lo.u32 %r1, %lane, 0x00020002, 0x00010000;   // element (r, c) is 8 r + c
    movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;)") +
                           kStore});
  for (uint32_t l = 0; l < 32; ++l) {
    uint32_t first = 8 * (2 * (l % 4)) + l / 4;
    EXPECT_EQ(out[l], first | (first + 8) << 16) << l;
  }
}

}  // namespace
}  // namespace pf::ptxvm
