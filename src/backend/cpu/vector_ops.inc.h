// The operations besides matrix products, written as plain loops that each instruction-set file
// compiles for itself: included inside its anonymous namespace, after PF_FMA(a, b, c) = a * b + c
// is defined (one rounding where the machine has it, else two). No include guard on purpose.

inline float lane_sum(const float (&lane)[16]) {
  float a[8], b[4];
  for (int i = 0; i < 8; ++i) a[i] = lane[i] + lane[i + 8];
  for (int i = 0; i < 4; ++i) b[i] = a[i] + a[i + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}

// Sums of 16 interleaved lanes, then of the lanes: one order for every caller.
inline float dot(const float* x, const float* y, int64_t n) {
  float lane[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int j = 0; j < 16; ++j) lane[j] = PF_FMA(x[i + j], y[i + j], lane[j]);
  for (int j = 0; i < n; ++i, ++j) lane[j] = PF_FMA(x[i], y[i], lane[j]);
  return lane_sum(lane);
}

void rms_norm(const float* x, const float* weight, float epsilon, int64_t n, float* out) {
  float scale = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    float g = gate[i], a = g < 0 ? g : -g;  // -|g|
    float e = exp_nonpositive(a);           // sigmoid(g) = 1 / (1 + e^-g), written without overflow
    float s = (g < 0 ? e : 1.0f) / (1.0f + e);
    out[i] = g * s * up[i];
  }
}

// The values of one step -> int8 with a scale: x ~ scale * q, |q| <= 127. Where one is not finite
// the scale is NaN, so that the row's products are.
template <WeightFormat F>
inline void quantize_step(const float* x, int64_t n, int m, int M, std::byte* step) {
  constexpr int kWidth = step_width(F), kQuads = kWidth / 4;
  float v[kWidth];
  uint32_t most = 0;  // magnitudes stand in this order as integers too, NaN above all
  for (int i = 0; i < kWidth; ++i) v[i] = i < n ? x[i] : 0.0f;
  for (int i = 0; i < kWidth; ++i) {
    uint32_t magnitude = std::bit_cast<uint32_t>(v[i]) & 0x7fffffffu;
    most = magnitude > most ? magnitude : most;
  }
  float max = std::bit_cast<float>(most), scale = max / 127.0f;
  if (most >= 0x7f800000u) {
    scale = std::numeric_limits<float>::quiet_NaN();
    for (float& each : v) each = 0;
  }
  float inverse = max >= 0x1p-100f ? 127.0f / max : 0.0f;  // below, 127 / max would overflow
  int8_t q[kWidth];
  int32_t sum = 0;
  for (int i = 0; i < kWidth; ++i) {
    int32_t r = static_cast<int32_t>(v[i] * inverse + (v[i] < 0 ? -0.5f : 0.5f));
    sum += r;
    q[i] = static_cast<int8_t>(r);
  }
  for (int l = 0; l < kQuads; ++l) std::memcpy(step + (l * M + m) * 4, q + 4 * l, 4);
  std::memcpy(step + (kQuads * M + m) * 4, &scale, 4);
  float total = scale * static_cast<float>(sum);
  int32_t offset = -128 * sum;
  std::memcpy(step + ((kQuads + 1) * M + m) * 4, is_int4(F) ? static_cast<void*>(&total) : &offset,
              4);
}

template <WeightFormat F>
inline void quantize_steps(const float* x, int64_t n, int64_t n_steps, int m, int M,
                           std::byte* chunk) {
  for (int64_t s = 0; s < n_steps; ++s)
    quantize_step<F>(x + s * step_width(F), n - s * step_width(F), m, M,
                     chunk + s * row_step_bytes(F) * M);
}

// to_bf16 as a loop without branches.
inline void round_row(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u = std::bit_cast<uint32_t>(x[i]);
    uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
    uint32_t quiet = u | 0x400000u;
    out[i] = static_cast<uint16_t>(((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
  }
}

inline void pack_bf16(const float* x, int64_t n, int64_t n_steps, int m, int M, uint32_t* out) {
  constexpr int64_t kPart = 256;
  alignas(64) uint16_t rounded[2 * kPart];
  for (int64_t first = 0; first < n_steps; first += kPart) {
    int64_t steps = n_steps - first < kPart ? n_steps - first : kPart;
    int64_t values = n - 2 * first < 2 * steps ? n - 2 * first : 2 * steps;
    rounded[2 * steps - 1] = 0;  // of an odd row
    round_row(x + 2 * first, values, rounded);
    for (int64_t k = 0; k < steps; ++k)
      std::memcpy(out + (first + k) * M + m, rounded + 2 * k, sizeof(uint32_t));
  }
}

void pack_row(WeightFormat format, const float* x, int64_t n, int64_t n_steps, int m, int M,
              std::byte* chunk) {
  if (format == WeightFormat::kF32) {
    float* out = reinterpret_cast<float*>(chunk);
    for (int64_t k = 0; k < n_steps; ++k) out[k * M + m] = x[k];
  } else if (format == WeightFormat::kBf16) {
    pack_bf16(x, n, n_steps, m, M, reinterpret_cast<uint32_t*>(chunk));
  } else if (format == WeightFormat::kInt8) {
    quantize_steps<WeightFormat::kInt8>(x, n, n_steps, m, M, chunk);
  } else if (format == WeightFormat::kInt4) {
    quantize_steps<WeightFormat::kInt4>(x, n, n_steps, m, M, chunk);
  } else {
    quantize_steps<WeightFormat::kInt4Wide>(x, n, n_steps, m, M, chunk);
  }
}

#include "backend/cpu/attend.inc.h"

// The whole table of one file from its gemm<format, R, M>, given as a variable template.
template <WeightFormat F, int R, int M>
constexpr void fill_gemm(CpuKernels* k) {
  k->gemm[static_cast<int>(F)][R - 1][M - 1] = gemm_or_null<F, R, M>();
  if constexpr (M < kMaxChunkRows)
    fill_gemm<F, R, M + 1>(k);
  else if constexpr (R < kMaxTiles)
    fill_gemm<F, R + 1, 1>(k);
}

CpuKernels make_table(const char* name) {
  CpuKernels k = {};
  k.name = name;
  fill_gemm<WeightFormat::kF32, 1, 1>(&k);
  fill_gemm<WeightFormat::kBf16, 1, 1>(&k);
  fill_gemm<WeightFormat::kInt8, 1, 1>(&k);
  fill_gemm<WeightFormat::kInt4, 1, 1>(&k);
  fill_gemm<WeightFormat::kInt4Wide, 1, 1>(&k);
  for (int f = 0; f < kFormats; ++f) {
    bool floats = is_float(static_cast<WeightFormat>(f));
    k.few_rows[f] = floats ? kFewFloat : kFewInt;
    k.many_rows[f] = floats ? kManyFloat : kManyInt;
  }
  k.attend[static_cast<int>(KvType::kF32)] = attend<float>;
  k.attend[static_cast<int>(KvType::kBf16)] = attend<bf16>;
  k.attend[static_cast<int>(KvType::kInt8)] = attend<int8_t>;
  k.rms_norm = rms_norm;
  k.silu_mul = silu_mul;
  k.pack_row = pack_row;
  return k;
}
