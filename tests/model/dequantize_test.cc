// Truth: each format's definition as a scalar loop over the elements of a block (level 1), and
// hand-worked blocks (level 0). Results are equal bit for bit: both round alike.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "model/tensor.h"

namespace pf {
namespace {

using Bytes = std::vector<uint8_t>;

float half(const Bytes& b, size_t at) {  // binary16 by its definition
  unsigned h = b[at] | b[at + 1] << 8, e = h >> 10 & 31, m = h & 1023;
  float v = e == 0 ? std::ldexp(float(m), -24) : std::ldexp(float(1024 + m), int(e) - 25);
  return h & 0x8000 ? -v : v;
}
int nibble(const Bytes& b, size_t at, int j) {
  return j < 16 ? b[at + j] & 15 : b[at + j - 16] >> 4;
}

float q4_0(const Bytes& b, int j) { return half(b, 0) * float(nibble(b, 2, j) - 8); }
float q4_1(const Bytes& b, int j) {
  float p = half(b, 0) * float(nibble(b, 4, j));
  return p + half(b, 2);
}
float q5_0(const Bytes& b, int j) {
  int high = b[2 + j / 8] >> j % 8 & 1;
  return half(b, 0) * float(nibble(b, 6, j) + 16 * high - 16);
}
float q5_1(const Bytes& b, int j) {
  int high = b[4 + j / 8] >> j % 8 & 1;
  float p = half(b, 0) * float(nibble(b, 8, j) + 16 * high);
  return p + half(b, 2);
}
float q8_0(const Bytes& b, int j) { return half(b, 0) * float(int8_t(b[2 + j])); }

// 6-bit scale (which = 0) or minimum (1) of group g out of the 12 packed bytes at 4.
int k_part(const Bytes& b, int g, int which) {
  const uint8_t* s = &b[4];
  if (g < 4) return s[g + 4 * which] & 63;
  int low = which ? s[g + 4] >> 4 : s[g + 4] & 15;
  return low + 16 * (s[g - 4 + 4 * which] >> 6);
}
float k_value(const Bytes& b, int j, int q) {
  float d = half(b, 0) * float(k_part(b, j / 32, 0)), m = half(b, 2) * float(k_part(b, j / 32, 1));
  float p = d * float(q);
  return p - m;
}
float q4_k(const Bytes& b, int j) {
  uint8_t v = b[16 + j / 64 * 32 + j % 32];
  return k_value(b, j, j / 32 % 2 ? v >> 4 : v & 15);
}
float q5_k(const Bytes& b, int j) {
  uint8_t v = b[48 + j / 64 * 32 + j % 32];
  int fifth = b[16 + j % 32] >> j / 32 & 1;
  return k_value(b, j, (j / 32 % 2 ? v >> 4 : v & 15) + 16 * fifth);
}
float q6_k(const Bytes& b, int j) {
  int half_index = j / 128, r = j % 128, quarter = r / 32, l = r % 32;
  uint8_t v = b[half_index * 64 + quarter % 2 * 32 + l];
  int low = quarter / 2 ? v >> 4 : v & 15, high = b[128 + half_index * 32 + l] >> 2 * quarter & 3;
  float d = half(b, 208) * float(int8_t(b[192 + j / 16]));
  return d * float(low + 16 * high - 32);
}

struct Format {
  TensorType type;
  float (*oracle)(const Bytes&, int);
  std::vector<size_t> halves;  // where binary16 numbers lie in a block
};
const Format kFormats[] = {
    {TensorType::kQ4_0, q4_0, {0}},    {TensorType::kQ4_1, q4_1, {0, 2}},
    {TensorType::kQ5_0, q5_0, {0}},    {TensorType::kQ5_1, q5_1, {0, 2}},
    {TensorType::kQ8_0, q8_0, {0}},    {TensorType::kQ4_K, q4_k, {0, 2}},
    {TensorType::kQ5_K, q5_k, {0, 2}}, {TensorType::kQ6_K, q6_k, {208}},
};

Tensor tensor_on(TensorType type, std::vector<int64_t> shape, const Bytes& bytes) {
  return {"t", type, std::move(shape), std::as_bytes(std::span(bytes))};
}

TEST(Dequantize, RandomBlocksEqualTheDefinition) {
  std::mt19937 random(7);
  for (const Format& f : kFormats) {
    SCOPED_TRACE(type_name(f.type));
    BlockShape shape = block_shape(f.type);
    constexpr int64_t kRows = 3, kBlocks = 3;
    Bytes all(static_cast<size_t>(kRows * kBlocks * shape.bytes));
    for (uint8_t& b : all) b = static_cast<uint8_t>(random());
    for (size_t at = 0; at < all.size(); at += static_cast<size_t>(shape.bytes)) {
      for (size_t h : f.halves) all[at + h + 1] &= 0xbb;  // exponents below 31: finite scales
    }
    int64_t cols = kBlocks * shape.n_weights;
    Tensor t = tensor_on(f.type, {kRows, cols}, all);
    ASSERT_TRUE(rows_are_finite(t, 0, kRows));
    std::vector<float> out(static_cast<size_t>(2 * cols) + 512, -7);
    dequantize_rows(t, 1, 2, out.data());  // rows 1 and 2, guards behind
    size_t first_block = static_cast<size_t>(kBlocks);
    for (int64_t i = 0; i < 2 * cols; ++i) {
      size_t block = first_block + static_cast<size_t>(i / shape.n_weights);
      auto begin = all.begin() + static_cast<int64_t>(block) * shape.bytes;
      float want = f.oracle(Bytes(begin, begin + shape.bytes), int(i % shape.n_weights));
      ASSERT_EQ(out[static_cast<size_t>(i)], want) << i;
    }
    for (size_t i = static_cast<size_t>(2 * cols); i < out.size(); ++i) ASSERT_EQ(out[i], -7);
  }
}

TEST(Dequantize, HandWorkedBlocks) {
  // binary16: 0x3800 = 0.5, 0x4000 = 2.
  Bytes a(18, 0x98);  // low nibble 8, high nibble 9
  a[0] = 0x00, a[1] = 0x38;
  float out[256];
  dequantize_rows(tensor_on(TensorType::kQ4_0, {32}, a), 0, 1, out);
  EXPECT_EQ(out[0], 0);      // 0.5 * (8 - 8)
  EXPECT_EQ(out[16], 0.5f);  // 0.5 * (9 - 8)
  Bytes b(20, 0xf1);
  b[0] = 0x00, b[1] = 0x38, b[2] = 0x00, b[3] = 0x40;
  dequantize_rows(tensor_on(TensorType::kQ4_1, {32}, b), 0, 1, out);
  EXPECT_EQ(out[3], 2.5f);   // 0.5 * 1 + 2
  EXPECT_EQ(out[31], 9.5f);  // 0.5 * 15 + 2
  Bytes c(22, 0x00);
  c[0] = 0x00, c[1] = 0x38, c[3] = 0x80;  // bit 15 of the fifth bits
  dequantize_rows(tensor_on(TensorType::kQ5_0, {32}, c), 0, 1, out);
  EXPECT_EQ(out[14], -8);  // 0.5 * (0 - 16)
  EXPECT_EQ(out[15], 0);   // 0.5 * (16 - 16)
  Bytes d(34, 0x80);
  d[0] = 0x00, d[1] = 0x38;
  dequantize_rows(tensor_on(TensorType::kQ8_0, {32}, d), 0, 1, out);
  EXPECT_EQ(out[9], -64);  // 0.5 * -128
  Bytes e(144, 0x21);      // d = 0.5, dmin = 2, all scales and mins 1, low 1, high 2
  e[0] = 0x00, e[1] = 0x38, e[2] = 0x00, e[3] = 0x40;
  for (int i = 4; i < 12; ++i) e[i] = 1;
  for (int i = 12; i < 16; ++i) e[i] = 0x11;
  dequantize_rows(tensor_on(TensorType::kQ4_K, {256}, e), 0, 1, out);
  EXPECT_EQ(out[0], -1.5f);    // 0.5 * 1 * 1 - 2 * 1
  EXPECT_EQ(out[255], -1.0f);  // 0.5 * 1 * 2 - 2 * 1
  Bytes g(210, 0x00);          // q = 0 - 32
  g[207] = 0xff, g[208] = 0x00, g[209] = 0x38;
  dequantize_rows(tensor_on(TensorType::kQ6_K, {256}, g), 0, 1, out);
  EXPECT_EQ(out[0], 0);     // scale 0
  EXPECT_EQ(out[255], 16);  // 0.5 * -1 * -32
}

TEST(Dequantize, EveryHalfAndBfloatPattern) {
  Bytes all(2 * 65536);
  for (size_t i = 0; i < 65536; ++i) all[2 * i] = uint8_t(i), all[2 * i + 1] = uint8_t(i >> 8);
  std::vector<float> out(65536);
  dequantize_rows(tensor_on(TensorType::kF16, {65536}, all), 0, 1, out.data());
  for (size_t i = 0; i < 65536; ++i) {
    if ((i >> 10 & 31) == 31) {
      EXPECT_EQ(std::isnan(out[i]), (i & 1023) != 0) << i;
      EXPECT_EQ(std::isinf(out[i]), (i & 1023) == 0) << i;
    } else {
      ASSERT_EQ(out[i], half(all, 2 * i)) << i;
    }
    ASSERT_EQ(std::signbit(out[i]), i >> 15 != 0) << i;
  }
  dequantize_rows(tensor_on(TensorType::kBF16, {65536}, all), 0, 1, out.data());
  for (size_t i = 0; i < 65536; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), i << 16);
}

TEST(Dequantize, MisalignedPlainRowsAreRead) {
  std::vector<float> values = {1.5f, -2, 3e30f, 0};
  Bytes bytes(17);
  std::memcpy(&bytes[1], values.data(), 16);
  Tensor t{"t", TensorType::kF32, {2, 2}, std::as_bytes(std::span(bytes)).subspan(1)};
  std::vector<float> out(4);
  dequantize_rows(t, 0, 2, out.data());
  EXPECT_EQ(out, values);
}

TEST(Finite, NanAndInfinityAreFoundInScalesAndValues) {
  for (const Format& f : kFormats) {
    BlockShape shape = block_shape(f.type);
    for (size_t h : f.halves) {
      for (uint8_t top : {0x7c, 0x7e, 0xfc}) {
        Bytes b(static_cast<size_t>(shape.bytes * 2), 0);
        Tensor t = tensor_on(f.type, {2, shape.n_weights}, b);
        EXPECT_TRUE(rows_are_finite(t, 0, 2));
        b[static_cast<size_t>(shape.bytes) + h + 1] = top;
        EXPECT_FALSE(rows_are_finite(t, 0, 2)) << type_name(f.type) << " at " << h;
        EXPECT_TRUE(rows_are_finite(t, 0, 1));
      }
    }
  }
  float bad[] = {1, INFINITY, NAN};
  for (int i = 0; i < 3; ++i) {
    Tensor t{"t", TensorType::kF32, {1}, std::as_bytes(std::span(bad).subspan(size_t(i), 1))};
    EXPECT_EQ(rows_are_finite(t, 0, 1), i == 0);
  }
}

TEST(TensorBytes, ChecksBeforeMultiplying) {
  auto bytes = [](TensorType t, std::vector<int64_t> shape) { return tensor_bytes(t, shape); };
  EXPECT_EQ(*bytes(TensorType::kF32, {3, 5}), 60);
  EXPECT_EQ(*bytes(TensorType::kQ4_1, {3, 64}), 120);
  EXPECT_FALSE(bytes(TensorType::kQ4_1, {3, 40}).ok());
  EXPECT_FALSE(bytes(TensorType::kQ4_K, {3, 128}).ok());
  EXPECT_FALSE(bytes(TensorType::kF32, {}).ok());
  EXPECT_FALSE(bytes(TensorType::kF32, {0, 4}).ok());
  EXPECT_FALSE(bytes(TensorType::kF32, {4, 0}).ok());
  EXPECT_FALSE(bytes(TensorType::kF32, {-1, 4}).ok());
  EXPECT_FALSE(bytes(TensorType::kF32, {int64_t{1} << 40, int64_t{1} << 40}).ok());
  EXPECT_FALSE(bytes(TensorType::kI8, {INT64_MAX}).ok());
}

}  // namespace
}  // namespace pf
