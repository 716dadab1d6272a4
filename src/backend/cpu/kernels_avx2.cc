// AVX2 with FMA and F16C. A tile of 16 rows is two registers.
#include "backend/cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "sampling/fast_math.h"

#define PF_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define PF_UNROLL _Pragma("GCC unroll 8")

namespace pf {
namespace {

// More rows of floats than two fill the processor's window, so that it sees few lines of weights
// ahead: every line is asked for, into the second-level cache (measured on Zen 4; it slows down
// ints, whose arithmetic takes longer than their bytes).
constexpr int kFewRows = 2;
constexpr int64_t kAheadBytes = 16 << 10;

inline __m256i load(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m256i broadcast(const std::byte* p) {
  int v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
inline __m256 half(const std::byte* p, int i) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + i));
}

template <int M>
inline void store(const __m256 (&acc)[M][2], const GemmArgs& a) {
  PF_UNROLL for (int m = 0; m < M; ++m) PF_UNROLL for (int h = 0; h < 2; ++h) {
    float* y = a.out + m * a.out_row + 8 * h;
    __m256 v = acc[m][h];
    if (a.add) v = _mm256_add_ps(_mm256_loadu_ps(y), v);
    _mm256_storeu_ps(y, v);
  }
}

// bf16 pairs: the high half of each word is a float by masking, the low half by shifting.
template <bool kPairs, int M>
void gemm_float(const GemmArgs& a) {
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  __m256 acc[M][2];
  PF_UNROLL for (int m = 0; m < M; ++m) acc[m][0] = acc[m][1] = _mm256_setzero_ps();
  const std::byte *w = a.weights, *x = a.rows;
  for (int64_t k = 0; k < a.n_steps; ++k, w += 64, x += 4 * M) {
    if constexpr (M > kFewRows)
      _mm_prefetch(reinterpret_cast<const char*>(w + kAheadBytes), _MM_HINT_T1);
    __m256i tile[2] = {load(w), load(w + 32)};
    PF_UNROLL for (int m = 0; m < M; ++m) {
      __m256i row = broadcast(x + 4 * m);
      PF_UNROLL for (int h = 0; h < 2; ++h) {
        if constexpr (kPairs) {
          acc[m][h] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(tile[h], high)),
                                      _mm256_castsi256_ps(_mm256_and_si256(row, high)), acc[m][h]);
          acc[m][h] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(tile[h], 16)),
                                      _mm256_castsi256_ps(_mm256_slli_epi32(row, 16)), acc[m][h]);
        } else {
          acc[m][h] =
              _mm256_fmadd_ps(_mm256_castsi256_ps(tile[h]), _mm256_castsi256_ps(row), acc[m][h]);
        }
      }
    }
  }
  store<M>(acc, a);
}

// Four unsigned times four signed bytes, summed, exactly: by way of 16-bit products.
inline __m256i dot4(__m256i sum, __m256i u, __m256i s) {
  const __m256i even = _mm256_set1_epi16(0x00ff);
  __m256i u0 = _mm256_and_si256(u, even), u1 = _mm256_srli_epi16(u, 8);
  __m256i s0 = _mm256_srai_epi16(_mm256_slli_epi16(s, 8), 8), s1 = _mm256_srai_epi16(s, 8);
  return _mm256_add_epi32(sum,
                          _mm256_add_epi32(_mm256_madd_epi16(u0, s0), _mm256_madd_epi16(u1, s1)));
}

// The dot products of one block of 32 k, exactly: eight sums of two products of 0..15 and -127..127
// stay within 16 bits, those of int8 do not.
template <WeightFormat F, int M>
inline void add_block(const std::byte* w, const std::byte* x, __m256i (&sum)[M][2]) {
  const __m256i low = _mm256_set1_epi8(15);
  __m256i pairs[M][2];
  PF_UNROLL for (int m = 0; m < M; ++m) pairs[m][0] = pairs[m][1] = _mm256_setzero_si256();
  PF_UNROLL for (int q = 0; q < 8; ++q) {
    __m256i tile[2];
    PF_UNROLL for (int h = 0; h < 2; ++h) {
      if constexpr (is_int4(F)) {
        __m256i v = load(w + q / 2 * 64 + h * 32);
        tile[h] = _mm256_and_si256(q % 2 ? _mm256_srli_epi16(v, 4) : v, low);
      } else {
        tile[h] = load(w + q * 64 + h * 32);
      }
    }
    PF_UNROLL for (int m = 0; m < M; ++m) {
      __m256i row = broadcast(x + (q * M + m) * 4);
      PF_UNROLL for (int h = 0; h < 2; ++h) {
        if constexpr (is_int4(F))
          pairs[m][h] = _mm256_add_epi16(pairs[m][h], _mm256_maddubs_epi16(tile[h], row));
        else
          sum[m][h] = dot4(sum[m][h], tile[h], row);
      }
    }
  }
  if constexpr (is_int4(F))
    PF_UNROLL for (int m = 0; m < M; ++m) PF_UNROLL for (int h = 0; h < 2; ++h) sum[m][h] =
        _mm256_add_epi32(sum[m][h], _mm256_madd_epi16(pairs[m][h], _mm256_set1_epi16(1)));
}

template <WeightFormat F, int M>
void gemm_int(const GemmArgs& a) {
  __m256 acc[M][2];
  PF_UNROLL for (int m = 0; m < M; ++m) acc[m][0] = acc[m][1] = _mm256_setzero_ps();
  const std::byte *w = a.weights, *x = a.rows;
  for (int64_t k = 0; k < a.n_steps; ++k) {
    __m256i sum[M][2];
    PF_UNROLL for (int m = 0; m < M; ++m) {
      __m256i start = _mm256_setzero_si256();
      if constexpr (!is_int4(F)) start = broadcast(x + (9 * M + m) * 4);
      sum[m][0] = sum[m][1] = start;
    }
    for (int64_t b = 0; b < n_blocks(F); ++b, w += block_bytes(F), x += kGroup * M)
      add_block<F, M>(w, x, sum);
    PF_UNROLL for (int m = 0; m < M; ++m) {  // w: the scales; x: what stands behind the quads
      __m256 s = _mm256_castsi256_ps(broadcast(x + 4 * m));
      __m256 total = _mm256_castsi256_ps(broadcast(x + 4 * (M + m)));
      PF_UNROLL for (int h = 0; h < 2; ++h) {
        acc[m][h] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[m][h]), _mm256_mul_ps(half(w, h), s), acc[m][h]);
        if constexpr (is_int4(F)) acc[m][h] = _mm256_fmadd_ps(half(w + 32, h), total, acc[m][h]);
      }
    }
    w += step_bytes(F) - n_blocks(F) * block_bytes(F);
    x += 8 * M;
  }
  store<M>(acc, a);
}

constexpr int kFewFloat = 4, kFewInt = 4, kManyFloat = 4, kManyInt = 4;

template <WeightFormat F, int R, int M>
constexpr GemmKernel gemm_or_null() {
  if constexpr (R > 1 || M > kManyFloat)
    return nullptr;  // sixteen registers hold one tile
  else if constexpr (is_float(F))
    return gemm_float<F == WeightFormat::kBf16, M>;
  else
    return gemm_int<F, M>;
}

// Sixteen floats, for attention.
struct Lanes {
  __m256 a, b;
};
constexpr int kQueryBlock = 2, kKeyGroups = 2, kValueLanes = 2;
inline Lanes splat(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
inline Lanes load_lanes(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline __m256 widen(const bf16* p) {
  __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
inline Lanes load_lanes(const bf16* p) { return {widen(p), widen(p + 8)}; }
inline __m256 widen(const int8_t* p) {
  __m128i v = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
}
inline Lanes load_lanes(const int8_t* p) { return {widen(p), widen(p + 8)}; }
// Part kPart of 16 words of keys.
template <int kPart>
inline __m256 part_of(__m256i v, bf16) {
  if constexpr (kPart == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
  return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
template <int kPart>
inline __m256 part_of(__m256i v, int8_t) {
  if constexpr (kPart < 3) v = _mm256_slli_epi32(v, 24 - 8 * kPart);
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(v, 24));
}
template <int kPart>
inline __m256 part_of(__m256i v, float) {
  return _mm256_castsi256_ps(v);
}
template <int kPart, class T>
inline Lanes load_part(const T* p) {
  const __m256i* from = reinterpret_cast<const __m256i*>(p);
  return {part_of<kPart>(_mm256_loadu_si256(from), T{}),
          part_of<kPart>(_mm256_loadu_si256(from + 1), T{})};
}
inline void store_lanes(float* p, Lanes v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
inline Lanes add_lanes(Lanes x, Lanes y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
inline Lanes mul_lanes(Lanes x, Lanes y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
inline Lanes max_lanes(Lanes x, Lanes y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
inline Lanes fma_lanes(Lanes x, Lanes y, Lanes z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline float max_of(Lanes x) {
  __m256 a = _mm256_max_ps(x.a, x.b);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
inline float sum_of(Lanes x) {
  __m256 a = _mm256_add_ps(x.a, x.b);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

#include "backend/cpu/vector_ops.inc.h"

}  // namespace

const CpuKernels* kernels_avx2() {
  bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
  if (!has) return nullptr;  // before a single instruction of this file runs
  static const CpuKernels table = make_table("avx2");
  return &table;
}

}  // namespace pf

#else

namespace pf {
const CpuKernels* kernels_avx2() { return nullptr; }
}  // namespace pf

#endif
