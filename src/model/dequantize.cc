// The value of every stored number, format by format. The layouts are those of GGUF's reference
// (llama.cpp, ggml-common.h and ggml-quants.c); d and m are binary16 unless said otherwise:
//
//   Q4_0   d, 16 bytes            w = d * (q - 8)            low nibbles: w[0..15], high: w[16..31]
//   Q4_1   d, m, 16 bytes         w = d * q + m              nibbles as Q4_0
//   Q5_0   d, u32 of high bits, 16 bytes   w = d * (q - 16)  bit j of the u32 belongs to w[j]
//   Q5_1   d, m, u32, 16 bytes    w = d * q + m
//   Q8_0   d, 32 int8             w = d * q
//   Q4_K   d, dmin, 12 bytes of 6-bit scale and min for 8 groups of 32, 128 bytes of nibbles
//          w = (d * scale) * q - (dmin * min); 32 bytes hold group 2j (low) and 2j + 1 (high)
//   Q5_K   as Q4_K with 32 bytes of fifth bits between: bit g of byte l belongs to w[32 g + l]
//   Q6_K   128 bytes of low nibbles, 64 bytes of high pairs, 16 int8 scales for groups of 16, d
//          w = (d * scale) * (q - 32)
//
// The inner loops have a fixed length and no branches, so that g++ -O3 vectorises them.
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "model/tensor.h"

namespace pf {
namespace {

template <class T>
T load(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

float load_f16(const uint8_t* p) { return to_float(f16{load<uint16_t>(p)}); }

void f32_row(const uint8_t* p, int64_t n, float* out) {
  std::memcpy(out, p, static_cast<size_t>(n) * 4);
}

// Branch-free: the exponent is moved by an exact multiplication, which also normalises subnormals.
void f16_row(const uint8_t* p, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t h = load<uint16_t>(p + 2 * i);
    uint32_t magnitude = (h & 0x7fffu) << 13;
    uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
    out[i] = std::bit_cast<float>(bits | (h & 0x8000u) << 16);
  }
}

void bf16_row(const uint8_t* p, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(p + 2 * i)) << 16);
  }
}

void q4_0_block(const uint8_t* p, float* out) {
  float d = load_f16(p);
  p += 2;
  for (int j = 0; j < 16; ++j) out[j] = d * static_cast<float>((p[j] & 15) - 8);
  for (int j = 0; j < 16; ++j) out[16 + j] = d * static_cast<float>((p[j] >> 4) - 8);
}

void q4_1_block(const uint8_t* p, float* out) {
  float d = load_f16(p), m = load_f16(p + 2);
  p += 4;
  for (int j = 0; j < 16; ++j) out[j] = d * static_cast<float>(p[j] & 15) + m;
  for (int j = 0; j < 16; ++j) out[16 + j] = d * static_cast<float>(p[j] >> 4) + m;
}

// The 32 five-bit numbers of a Q5 block: nibbles at `p`, fifth bits in `high`.
void q5_numbers(const uint8_t* p, uint32_t high, int* q) {
  for (int j = 0; j < 16; ++j) q[j] = (p[j] & 15) | static_cast<int>(high >> j & 1) << 4;
  for (int j = 0; j < 16; ++j) q[16 + j] = p[j] >> 4 | static_cast<int>(high >> (16 + j) & 1) << 4;
}

void q5_0_block(const uint8_t* p, float* out) {
  int q[32];
  float d = load_f16(p);
  q5_numbers(p + 6, load<uint32_t>(p + 2), q);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(q[j] - 16);
}

void q5_1_block(const uint8_t* p, float* out) {
  int q[32];
  float d = load_f16(p), m = load_f16(p + 2);
  q5_numbers(p + 8, load<uint32_t>(p + 4), q);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(q[j]) + m;
}

void q8_0_block(const uint8_t* p, float* out) {
  float d = load_f16(p);
  const int8_t* q = reinterpret_cast<const int8_t*>(p + 2);
  for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(q[j]);
}

// Scale and minimum of group g: 6 bits each. Groups 0-3 lie in the low six bits of bytes 0-3 and
// 4-7; groups 4-7 have their low four bits in bytes 8-11 and the high two on top of the former.
struct ScaleMin {
  float scale, min;
};
ScaleMin k_scale(const uint8_t* s, int g) {
  if (g < 4) return {static_cast<float>(s[g] & 63), static_cast<float>(s[g + 4] & 63)};
  return {static_cast<float>((s[g + 4] & 15) | (s[g - 4] >> 6) << 4),
          static_cast<float>(s[g + 4] >> 4 | (s[g] >> 6) << 4)};
}

void q4_k_block(const uint8_t* p, float* out) {
  float d = load_f16(p), dmin = load_f16(p + 2);
  for (int g = 0; g < 8; g += 2) {
    ScaleMin low = k_scale(p + 4, g), high = k_scale(p + 4, g + 1);
    float d0 = d * low.scale, m0 = dmin * low.min, d1 = d * high.scale, m1 = dmin * high.min;
    const uint8_t* q = p + 16 + g * 16;
    float* w = out + g * 32;
    for (int l = 0; l < 32; ++l) w[l] = d0 * static_cast<float>(q[l] & 15) - m0;
    for (int l = 0; l < 32; ++l) w[32 + l] = d1 * static_cast<float>(q[l] >> 4) - m1;
  }
}

void q5_k_block(const uint8_t* p, float* out) {
  float d = load_f16(p), dmin = load_f16(p + 2);
  const uint8_t* fifth = p + 16;
  for (int g = 0; g < 8; ++g) {
    ScaleMin s = k_scale(p + 4, g);
    float dg = d * s.scale, mg = dmin * s.min;
    const uint8_t* q = p + 48 + g / 2 * 32;
    int shift = g % 2 * 4;
    float* w = out + g * 32;
    for (int l = 0; l < 32; ++l) {
      w[l] = dg * static_cast<float>((q[l] >> shift & 15) | (fifth[l] >> g & 1) << 4) - mg;
    }
  }
}

void q6_k_block(const uint8_t* p, float* out) {
  float d = load_f16(p + 208);
  const int8_t* scales = reinterpret_cast<const int8_t*>(p + 192);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = p + half * 64;
    const uint8_t* high = p + 128 + half * 32;
    for (int g = 0; g < 8; ++g) {  // groups of 16: g / 2 picks nibble and pair, g % 2 the bytes
      float dg = d * static_cast<float>(scales[half * 8 + g]);
      int pair = g / 2, first = g % 2 * 16;
      const uint8_t* nibbles = low + (pair % 2) * 32 + first;
      float* w = out + half * 128 + g * 16;
      for (int l = 0; l < 16; ++l) {
        int q = (nibbles[l] >> pair / 2 * 4 & 15) | (high[first + l] >> pair * 2 & 3) << 4;
        w[l] = dg * static_cast<float>(q - 32);
      }
    }
  }
}

template <auto kBlock>
void blocks_row(const uint8_t* p, int64_t n, float* out, BlockShape shape) {
  for (int64_t i = 0; i < n; i += shape.n_weights, p += shape.bytes) kBlock(p, out + i);
}

void dequantize_row(TensorType type, const uint8_t* p, int64_t n, float* out) {
  BlockShape shape = block_shape(type);
  switch (type) {
    case TensorType::kF32:
      return f32_row(p, n, out);
    case TensorType::kF16:
      return f16_row(p, n, out);
    case TensorType::kBF16:
      return bf16_row(p, n, out);
    case TensorType::kQ4_0:
      return blocks_row<q4_0_block>(p, n, out, shape);
    case TensorType::kQ4_1:
      return blocks_row<q4_1_block>(p, n, out, shape);
    case TensorType::kQ5_0:
      return blocks_row<q5_0_block>(p, n, out, shape);
    case TensorType::kQ5_1:
      return blocks_row<q5_1_block>(p, n, out, shape);
    case TensorType::kQ8_0:
      return blocks_row<q8_0_block>(p, n, out, shape);
    case TensorType::kQ4_K:
      return blocks_row<q4_k_block>(p, n, out, shape);
    case TensorType::kQ5_K:
      return blocks_row<q5_k_block>(p, n, out, shape);
    case TensorType::kQ6_K:
      return blocks_row<q6_k_block>(p, n, out, shape);
    case TensorType::kI32:
    case TensorType::kI64:
    case TensorType::kI8:
      break;
  }
  die("an integer tensor was read as weights");
}

bool f16_is_finite(const uint8_t* p) { return (load<uint16_t>(p) & 0x7c00u) != 0x7c00u; }

// All values of a plain row, or the one or two binary16 scales of every block.
bool row_is_finite(TensorType type, const uint8_t* p, int64_t n) {
  bool ok = true;
  if (type == TensorType::kF32) {
    for (int64_t i = 0; i < n; ++i) ok &= (load<uint32_t>(p + 4 * i) & 0x7f800000u) != 0x7f800000u;
  } else if (type == TensorType::kF16) {
    for (int64_t i = 0; i < n; ++i) ok &= f16_is_finite(p + 2 * i);
  } else if (type == TensorType::kBF16) {
    for (int64_t i = 0; i < n; ++i) ok &= (load<uint16_t>(p + 2 * i) & 0x7f80u) != 0x7f80u;
  } else if (is_quantised(type)) {
    BlockShape shape = block_shape(type);
    bool two = type == TensorType::kQ4_1 || type == TensorType::kQ5_1 ||
               type == TensorType::kQ4_K || type == TensorType::kQ5_K;
    int64_t at = type == TensorType::kQ6_K ? 208 : 0;
    for (int64_t i = 0; i < n; i += shape.n_weights, p += shape.bytes) {
      ok &= f16_is_finite(p + at) && (!two || f16_is_finite(p + 2));
    }
  }
  return ok;
}

}  // namespace

void dequantize_rows(const Tensor& tensor, int64_t first, int64_t n, float* out) {
  check(first >= 0 && n >= 0 && first + n <= tensor.rows(), "rows outside of a tensor");
  int64_t cols = tensor.cols(), bytes = row_bytes(tensor.type, cols);
  const uint8_t* p = reinterpret_cast<const uint8_t*>(tensor.data.data()) + first * bytes;
  for (int64_t r = 0; r < n; ++r) dequantize_row(tensor.type, p + r * bytes, cols, out + r * cols);
}

bool rows_are_finite(const Tensor& tensor, int64_t first, int64_t n) {
  check(first >= 0 && n >= 0 && first + n <= tensor.rows(), "rows outside of a tensor");
  int64_t cols = tensor.cols(), bytes = row_bytes(tensor.type, cols);
  const uint8_t* p = reinterpret_cast<const uint8_t*>(tensor.data.data()) + first * bytes;
  for (int64_t r = 0; r < n; ++r) {
    if (!row_is_finite(tensor.type, p + r * bytes, cols)) return false;
  }
  return true;
}

}  // namespace pf
