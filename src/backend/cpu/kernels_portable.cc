// Plain loops: right everywhere, and the meaning that the other files are tested against.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "backend/cpu/kernels.h"
#include "sampling/fast_math.h"

#define PF_FMA(a, b, c) ((a) * (b) + (c))
#define PF_UNROLL _Pragma("GCC unroll 8")

namespace pf {
namespace {

float f16_at(const std::byte* p, int i) {
  f16 v;
  std::memcpy(&v, p + 2 * i, 2);
  return to_float(v);
}

template <int M>
void step_f32(const std::byte* w, const std::byte* x, float (*acc)[16]) {
  const float* weights = reinterpret_cast<const float*>(w);
  const float* rows = reinterpret_cast<const float*>(x);
  for (int m = 0; m < M; ++m)
    for (int r = 0; r < kTileRows; ++r) acc[m][r] += weights[r] * rows[m];
}

template <int M>
void step_bf16(const std::byte* w, const std::byte* x, float (*acc)[16]) {
  const bf16* weights = reinterpret_cast<const bf16*>(w);
  const bf16* rows = reinterpret_cast<const bf16*>(x);
  for (int m = 0; m < M; ++m) {
    float x0 = to_float(rows[2 * m]), x1 = to_float(rows[2 * m + 1]);
    for (int r = 0; r < kTileRows; ++r)
      acc[m][r] += to_float(weights[2 * r + 1]) * x1 + to_float(weights[2 * r]) * x0;
  }
}

// Integer dot products of one step are exact, so every instruction set agrees on them.
template <int M, WeightFormat F>
void step_int(const std::byte* w, const std::byte* x, float (*acc)[16]) {
  const uint8_t* weights = reinterpret_cast<const uint8_t*>(w);
  const int8_t* rows = reinterpret_cast<const int8_t*>(x);
  constexpr bool kFour = is_int4(F);
  constexpr int kQuads = step_width(F) / 4;
  const std::byte* scales = w + n_blocks(F) * block_bytes(F);
  for (int m = 0; m < M; ++m) {
    float s, total;
    int32_t offset;
    std::memcpy(&s, x + (kQuads * M + m) * 4, 4);
    std::memcpy(&total, x + ((kQuads + 1) * M + m) * 4, 4);
    std::memcpy(&offset, x + ((kQuads + 1) * M + m) * 4, 4);
    for (int r = 0; r < kTileRows; ++r) {
      int32_t d = kFour ? 0 : offset;
      for (int q = 0; q < kQuads; ++q)
        for (int b = 0; b < 4; ++b) {
          int32_t v = kFour ? weights[(q / 2) * 64 + r * 4 + b] >> (q % 2 * 4) & 15
                            : weights[q * 64 + r * 4 + b];
          d += v * rows[(q * M + m) * 4 + b];
        }
      acc[m][r] += static_cast<float>(d) * (f16_at(scales, r) * s);
      if (kFour) acc[m][r] += f16_at(scales + 32, r) * total;
    }
  }
}

template <WeightFormat F, int R, int M>
void gemm(const GemmArgs& a) {
  for (int t = 0; t < R; ++t) {
    float acc[M][16] = {};
    const std::byte *w = a.weights + t * a.tile_bytes, *x = a.rows;
    for (int64_t k = 0; k < a.n_steps; ++k, w += step_bytes(F), x += row_step_bytes(F) * M) {
      if constexpr (F == WeightFormat::kF32) step_f32<M>(w, x, acc);
      if constexpr (F == WeightFormat::kBf16) step_bf16<M>(w, x, acc);
      if constexpr (F == WeightFormat::kInt8) step_int<M, F>(w, x, acc);
      if constexpr (is_int4(F)) step_int<M, F>(w, x, acc);
    }
    for (int m = 0; m < M; ++m)
      for (int r = 0; r < kTileRows; ++r) {
        float* y = a.out + m * a.out_row + t * kTileRows + r;
        *y = a.add ? *y + acc[m][r] : acc[m][r];
      }
  }
}

constexpr int kFewFloat = 8, kFewInt = 8, kManyFloat = 8, kManyInt = 8;

template <WeightFormat F, int R, int M>
constexpr GemmKernel gemm_or_null() {
  if constexpr (R > 1 || M > kManyFloat) return nullptr;  // there is nothing to share
  return gemm<F, R, M>;
}

// Sixteen floats, for attention.
struct Lanes {
  float v[16];
};
constexpr int kQueryBlock = 1, kKeyGroups = 1, kValueLanes = 1;
inline Lanes splat(float v) {
  Lanes r;
  for (float& x : r.v) x = v;
  return r;
}
inline Lanes load_lanes(const float* p) {
  Lanes r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline Lanes load_lanes(const bf16* p) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.v[i] = to_float(p[i]);
  return r;
}
inline Lanes load_lanes(const int8_t* p) {
  Lanes r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(p[i]);
  return r;
}
// Part kPart of 16 words of keys.
template <int kPart, class T>
inline Lanes load_part(const T* p) {
  constexpr int kParts = 4 / sizeof(T);
  T part[16];
  for (int i = 0; i < 16; ++i) part[i] = p[kParts * i + kPart];
  return load_lanes(part);
}
inline void store_lanes(float* p, const Lanes& r) { std::memcpy(p, r.v, sizeof(r.v)); }
inline Lanes add_lanes(Lanes a, const Lanes& b) {
  for (int i = 0; i < 16; ++i) a.v[i] += b.v[i];
  return a;
}
inline Lanes mul_lanes(Lanes a, const Lanes& b) {
  for (int i = 0; i < 16; ++i) a.v[i] *= b.v[i];
  return a;
}
inline Lanes max_lanes(Lanes a, const Lanes& b) {
  for (int i = 0; i < 16; ++i) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
inline Lanes fma_lanes(const Lanes& a, const Lanes& b, Lanes c) {
  for (int i = 0; i < 16; ++i) c.v[i] = PF_FMA(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline float max_of(const Lanes& a) {
  float most = a.v[0];
  for (float x : a.v) most = x > most ? x : most;
  return most;
}
inline float lane_sum(const float (&lane)[16]);
inline float sum_of(const Lanes& a) { return lane_sum(a.v); }

#include "backend/cpu/vector_ops.inc.h"

}  // namespace

const CpuKernels* kernels_portable() {
  static const CpuKernels table = make_table("portable");
  return &table;
}

const CpuKernels* choose_kernels(const char* name) {
  using namespace std::string_view_literals;
  std::string_view want = name;
  if (want == "portable"sv) return kernels_portable();
  if (want == "avx2"sv) return kernels_avx2();
  if (want == "avx512"sv) return kernels_avx512();
  for (const CpuKernels* k : {kernels_avx512(), kernels_avx2()})
    if (k != nullptr) return k;
  return kernels_portable();
}

}  // namespace pf
