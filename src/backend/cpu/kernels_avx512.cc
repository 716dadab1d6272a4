// AVX-512 with BF16 and VNNI. One accumulator register per tile and row: per step R loads of
// weights, M broadcasts of activations, R * M multiply-accumulates.
#include "backend/cpu/kernels.h"

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__) && defined(__AVX512BW__)

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "sampling/fast_math.h"

#define PF_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define PF_UNROLL _Pragma("GCC unroll 16")

namespace pf {
namespace {

// How a stream of weights is asked for ahead of the arithmetic (measured on Zen 4). Few rows are
// little work per line: the processor itself runs far ahead of them, and is only told in time, by
// one line of several, which page comes next; a request for every line would stand in its way. Many
// rows fill its window with arithmetic, so that it sees few lines ahead, and so do some whose
// packed activations and a tile overflow the first-level cache together: there every line is asked
// for, from memory into the second-level cache and, of floats, from there into the first. Several
// tiles at once are those of a prompt, whose weights are in the cache but for the first rows.
constexpr int64_t kFewAheadBytes = 12 << 10, kManyAheadBytes = 16 << 10, kNearAheadBytes = 768;
constexpr int64_t kTilesAheadBytes = 4 << 10;
constexpr int kFewRowsFloat = 4, kFewRowsInt = 2;  // up to so many, always,
constexpr int kFewSmallRowsFloat = 6, kFewSmallRowsInt8 = 5,
              kFewSmallRowsInt4 = 3;  // or so many whose activations take no more than
constexpr int64_t kSmallRowsFloatBytes = 8 << 10, kSmallRowsIntBytes = 4 << 10;

inline __m512i broadcast(const std::byte* p) {
  int v;
  std::memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
inline __m512 broadcast_float(const std::byte* p) { return _mm512_castsi512_ps(broadcast(p)); }
inline __m512i load(const std::byte* p) { return _mm512_load_si512(p); }
inline void ask_near(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}
inline void ask_far(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

template <int R, int M>
inline void store(const __m512 (&acc)[R][M], const GemmArgs& a) {
  PF_UNROLL for (int m = 0; m < M; ++m) PF_UNROLL for (int r = 0; r < R; ++r) {
    float* y = a.out + m * a.out_row + 16 * r;
    __m512 v = acc[r][m];
    if (a.add) v = _mm512_add_ps(_mm512_loadu_ps(y), v);
    _mm512_storeu_ps(y, v);
  }
}

template <int R, int M>
inline void clear(__m512 (&acc)[R][M]) {
  PF_UNROLL for (int r = 0; r < R; ++r) PF_UNROLL for (int m = 0; m < M; ++m) acc[r][m] =
      _mm512_setzero_ps();
}

template <bool kPairs, bool kFew, int R, int M>
inline void add_step(const std::byte* w, int64_t tile_bytes, const std::byte* x,
                     __m512 (&acc)[R][M]) {
  __m512i tile[R];
  PF_UNROLL for (int r = 0; r < R; ++r) {
    if constexpr (R > 1) {
      ask_near(w + r * tile_bytes + kTilesAheadBytes);
    } else if constexpr (!kFew) {
      ask_far(w + kManyAheadBytes);
      ask_near(w + kNearAheadBytes);
    }
    tile[r] = load(w + r * tile_bytes);
  }
  PF_UNROLL for (int m = 0; m < M; ++m) {
    __m512i row = broadcast(x + 4 * m);
    PF_UNROLL for (int r = 0; r < R; ++r) {
      if constexpr (kPairs)
        acc[r][m] = _mm512_dpbf16_ps(acc[r][m], reinterpret_cast<__m512bh>(tile[r]),
                                     reinterpret_cast<__m512bh>(row));
      else
        acc[r][m] =
            _mm512_fmadd_ps(_mm512_castsi512_ps(tile[r]), _mm512_castsi512_ps(row), acc[r][m]);
    }
  }
}

template <bool kPairs, bool kFew, int R, int M>
inline void gemm_float(const GemmArgs& a) {
  constexpr int kSteps = kFew ? 4 : 1;  // of one request
  __m512 acc[R][M];
  clear<R, M>(acc);
  const std::byte *w = a.weights, *x = a.rows;
  int64_t k = 0;
  for (; k + kSteps <= a.n_steps; k += kSteps) {
    if constexpr (kFew) ask_far(w + kFewAheadBytes);
    PF_UNROLL for (int i = 0; i < kSteps; ++i, w += 64, x += 4 * M)
        add_step<kPairs, kFew>(w, a.tile_bytes, x, acc);
  }
  for (; k < a.n_steps; ++k, w += 64, x += 4 * M) add_step<kPairs, kFew>(w, a.tile_bytes, x, acc);
  store<R, M>(acc, a);
}

template <bool kPairs, int R, int M>
void gemm_float(const GemmArgs& a) {
  if constexpr (R == 1 && M <= kFewSmallRowsFloat)
    if (M <= kFewRowsFloat || a.n_steps * 4 * M <= kSmallRowsFloatBytes)
      return gemm_float<kPairs, true, R, M>(a);
  gemm_float<kPairs, false, R, M>(a);
}

// What INT4 costs where memory does not: a multiply-accumulate of a register (64 products of 8
// bits, or 16 of floats) takes a cycle of Zen 4. For 32 columns of a tile each row pays 8 vpdpbusd
// and, to leave the integers, one product of the two scales and two multiply-adds: 11 cycles. None
// of the three can be hoisted: both scales change with the group, and its minimum is no whole
// multiple of the weights' scale. Unpacking is per tile and runs beside. kInt4Wide pays the three
// once in 128 columns, 35 cycles in place of 44, and that is the measured ratio in the cache. So m
// rows hide behind the memory while it gives a thread less than 320 / (11 m) or 272 / (8.75 m)
// bytes a cycle.

// `bytes` of one tile.
template <bool kFew, int R>
inline void ask_tile(const std::byte* w, int64_t bytes) {
  if constexpr (kFew) {
    for (int64_t at = 0; at < bytes; at += 320) ask_far(w + kFewAheadBytes + at);
  } else {
    PF_UNROLL for (int64_t at = 0; at < bytes; at += 64) {
      if constexpr (R == 1)
        ask_far(w + kManyAheadBytes + at);
      else
        ask_near(w + kTilesAheadBytes + at);
    }
  }
}

// The dot products of one block of 32 k: 8 vpdpbusd per tile and row, on C sums in turn.
template <WeightFormat F, int C, int R, int M>
inline void add_block(const std::byte* w, int64_t tile_bytes, const std::byte* x,
                      __m512i (&sum)[C][R][M]) {
  const __m512i low = _mm512_set1_epi8(15);
  PF_UNROLL for (int q = 0; q < 8; q += 2) {
    __m512i first[R], second[R];
    PF_UNROLL for (int r = 0; r < R; ++r) {
      const std::byte* tile = w + r * tile_bytes;
      if constexpr (is_int4(F)) {
        __m512i v = _mm512_loadu_si512(tile + q * 32);
        first[r] = _mm512_and_si512(v, low);
        second[r] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
      } else {
        first[r] = _mm512_loadu_si512(tile + q * 64);
        second[r] = _mm512_loadu_si512(tile + q * 64 + 64);
      }
    }
    PF_UNROLL for (int m = 0; m < M; ++m) {
      __m512i x0 = broadcast(x + (q * M + m) * 4), x1 = broadcast(x + ((q + 1) * M + m) * 4);
      PF_UNROLL for (int r = 0; r < R; ++r) {
        __m512i &even = sum[q % C][r][m], &odd = sum[(q + 1) % C][r][m];
        even = _mm512_dpbusd_epi32(even, first[r], x0);
        odd = _mm512_dpbusd_epi32(odd, second[r], x1);
      }
    }
  }
}

// A step's sums to the accumulators, times its scale; INT4 adds minimum times sum of x. `w` and `x`
// stand behind the quads.
template <WeightFormat F, int R, int M>
inline void add_scaled(const std::byte* w, int64_t tile_bytes, const std::byte* x,
                       const __m512i (&sum)[R][M], __m512 (&acc)[R][M]) {
  PF_UNROLL for (int r = 0; r < R; ++r) {
    const __m256i* scales = reinterpret_cast<const __m256i*>(w + r * tile_bytes);
    __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256(scales)), min = _mm512_setzero_ps();
    if constexpr (is_int4(F)) min = _mm512_cvtph_ps(_mm256_loadu_si256(scales + 1));
    PF_UNROLL for (int m = 0; m < M; ++m) {
      __m512 s = broadcast_float(x + 4 * m);
      acc[r][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][m]), _mm512_mul_ps(d, s), acc[r][m]);
      if constexpr (is_int4(F))
        acc[r][m] = _mm512_fmadd_ps(min, broadcast_float(x + 4 * (M + m)), acc[r][m]);
    }
  }
}

template <WeightFormat F, bool kFew, int R, int M>
inline void gemm_int(const GemmArgs& a) {
  constexpr int64_t kLast = step_bytes(F) - n_blocks(F) * block_bytes(F);
  constexpr bool kWide = n_blocks(F) > 1;
  // Sums of few rows would wait for each other through a long step: they get some more.
  constexpr int C = !kWide || R > 1 ? 1 : M == 1 ? 4 : M <= 8 ? 2 : 1;
  __m512 acc[R][M];
  clear<R, M>(acc);
  const std::byte *w = a.weights, *x = a.rows;
  for (int64_t k = 0; k < a.n_steps; ++k, w += kLast, x += 8 * M) {
    __m512i sum[C][R][M];
    PF_UNROLL for (int m = 0; m < M; ++m) {
      __m512i start = _mm512_setzero_si512();
      if constexpr (!is_int4(F)) start = broadcast(x + (9 * M + m) * 4);
      PF_UNROLL for (int c = 0; c < C; ++c) PF_UNROLL for (int r = 0; r < R; ++r) sum[c][r][m] =
          start;
    }
    for (int64_t b = 0; b < n_blocks(F); ++b, w += block_bytes(F), x += kGroup * M) {
      PF_UNROLL for (int r = 0; r < R; ++r)
          ask_tile<kFew, R>(w + r * a.tile_bytes, block_bytes(F) + (kWide ? 0 : kLast));
      add_block<F, C, R, M>(w, a.tile_bytes, x, sum);
    }
    if constexpr (kWide && !kFew)
      PF_UNROLL for (int r = 0; r < R; ++r) ask_tile<kFew, R>(w + r * a.tile_bytes, kLast);
    PF_UNROLL for (int c = 1; c < C; ++c) PF_UNROLL for (int r = 0; r < R; ++r)
        PF_UNROLL for (int m = 0; m < M; ++m) sum[0][r][m] =
            _mm512_add_epi32(sum[0][r][m], sum[c][r][m]);
    add_scaled<F, R, M>(w, a.tile_bytes, x, sum[0], acc);
  }
  store<R, M>(acc, a);
}

template <WeightFormat F, int R, int M>
void gemm_int(const GemmArgs& a) {
  if constexpr (R == 1 && M <= (is_int4(F) ? kFewSmallRowsInt4 : kFewSmallRowsInt8))
    if (M <= kFewRowsInt || a.n_steps * row_step_bytes(F) * M <= kSmallRowsIntBytes)
      return gemm_int<F, true, R, M>(a);
  gemm_int<F, false, R, M>(a);
}

template <WeightFormat F, int R, int M>
constexpr GemmKernel gemm_or_null() {
  if constexpr (is_float(F)) {
    if constexpr (R * M + R + 1 <= 32) return gemm_float<F == WeightFormat::kBf16, R, M>;
  } else {
    if constexpr (R == 1 || 2 * R * M + 2 * R + 4 <= 32) return gemm_int<F, R, M>;
  }
  return nullptr;  // past the registers; one tile always fits
}

constexpr int kFewFloat = 16, kFewInt = 16, kManyFloat = 8, kManyInt = 6;

// Sixteen floats, for attention.
using Lanes = __m512;
constexpr int kQueryBlock = 4, kKeyGroups = 4, kValueLanes = 4;
inline Lanes splat(float v) { return _mm512_set1_ps(v); }
inline Lanes load_lanes(const float* p) { return _mm512_loadu_ps(p); }
inline Lanes load_lanes(const bf16* p) {
  __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
inline Lanes load_lanes(const int8_t* p) {
  __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
}
// Part kPart of 16 words of keys.
template <int kPart>
inline Lanes load_part(const bf16* p) {
  __m512i v = _mm512_loadu_si512(p);
  if constexpr (kPart == 0) return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
  return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
template <int kPart>
inline Lanes load_part(const int8_t* p) {
  __m512i v = _mm512_loadu_si512(p);
  if constexpr (kPart < 3) v = _mm512_slli_epi32(v, 24 - 8 * kPart);
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(v, 24));
}
template <int kPart>
inline Lanes load_part(const float* p) {
  return load_lanes(p);
}
inline void store_lanes(float* p, Lanes v) { _mm512_storeu_ps(p, v); }
inline Lanes add_lanes(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes mul_lanes(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes max_lanes(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
inline Lanes fma_lanes(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
inline float max_of(Lanes a) { return _mm512_reduce_max_ps(a); }
inline float sum_of(Lanes a) { return _mm512_reduce_add_ps(a); }

#include "backend/cpu/vector_ops.inc.h"

}  // namespace

const CpuKernels* kernels_avx512() {
  bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (!has) return nullptr;  // before a single instruction of this file runs
  static const CpuKernels table = make_table("avx512");
  return &table;
}

}  // namespace pf

#else

namespace pf {
const CpuKernels* kernels_avx512() { return nullptr; }
}  // namespace pf

#endif
