// Attention over tiles of 16 keys, compiled by each instruction-set file for itself: included
// inside its anonymous namespace after Lanes (16 floats: load, store, splat, add, mul, fma) and
// these are defined: kQueryBlock (queries side by side), kScoreChains (partial sums of one dot
// product) and kValueLanes (accumulators of one query). They fill the registers; only kScoreChains
// is part of a row's order of sums, so a query has the same bits alone and in any block. No include
// guard.
#include "backend/cpu/turn_keys.inc.h"

// Dot products of Q queries with the 16 keys: kScoreChains sums over d = c mod kScoreChains, then
// those in order.
template <int Q>
inline void score_keys(const float* const* queries, const float* keys, int64_t D,
                       float (*scores)[16]) {
  Lanes sum[Q][kScoreChains];
  PF_UNROLL for (int q = 0; q < Q; ++q) PF_UNROLL for (int c = 0; c < kScoreChains; ++c) sum[q][c] =
      splat(0.0f);
  for (int64_t d = 0; d < D; d += kScoreChains) {
    PF_UNROLL for (int c = 0; c < kScoreChains; ++c) {
      Lanes key = load_lanes(keys + (d + c) * 16);
      PF_UNROLL for (int q = 0; q < Q; ++q) sum[q][c] =
          fma_lanes(splat(queries[q][d + c]), key, sum[q][c]);
    }
  }
  PF_UNROLL for (int q = 0; q < Q; ++q) {
    PF_UNROLL for (int c = 1; c < kScoreChains; ++c) sum[q][0] = add_lanes(sum[q][0], sum[q][c]);
    store_lanes(scores[q], sum[q][0]);
  }
}

// acc[16 N] = acc * keep + sum over keys in order of p[key] * value[key], for Q queries.
template <int Q, int N>
inline void add_values(const float (*p)[16], const float* keep, const float* values, int64_t n,
                       int64_t D, float* const* acc) {
  Lanes sum[Q][N];
  PF_UNROLL for (int q = 0; q < Q; ++q) PF_UNROLL for (int i = 0; i < N; ++i) sum[q][i] =
      mul_lanes(splat(keep[q]), load_lanes(acc[q] + 16 * i));
  for (int64_t j = 0; j < n; ++j) {
    Lanes value[N];
    PF_UNROLL for (int i = 0; i < N; ++i) value[i] = load_lanes(values + j * D + 16 * i);
    PF_UNROLL for (int q = 0; q < Q; ++q) {
      Lanes weight = splat(p[q][j]);
      PF_UNROLL for (int i = 0; i < N; ++i) sum[q][i] = fma_lanes(weight, value[i], sum[q][i]);
    }
  }
  PF_UNROLL for (int q = 0; q < Q; ++q) PF_UNROLL for (int i = 0; i < N; ++i)
      store_lanes(acc[q] + 16 * i, sum[q][i]);
}

// Online softmax (Milakov & Gimelshein 2018): per tile the new maximum, then sum and accumulator
// are scaled once and extended.
template <int Q>
inline void attend_tile(const float* const* queries, const float* keys, const float* values,
                        int64_t n, int64_t D, float* const* states) {
  alignas(64) float p[Q][16];
  float keep[Q];
  float* acc[Q];
  score_keys<Q>(queries, keys, D, p);
  for (int q = 0; q < Q; ++q) {
    float* state = states[q];
    for (int j = 0; j < 16; ++j) p[q][j] = j < n ? p[q][j] : -INFINITY;
    float max = state[0];
    for (int j = 0; j < 16; ++j) max = p[q][j] > max ? p[q][j] : max;
    keep[q] = exp_nonpositive(state[0] - max);
    for (int j = 0; j < 16; ++j) p[q][j] = exp_nonpositive(p[q][j] - max);
    state[0] = max;
    state[1] = state[1] * keep[q] + lane_sum(p[q]);
    acc[q] = state + 2;
  }
  int64_t d = 0;
  for (; d + 16 * kValueLanes <= D; d += 16 * kValueLanes) {
    add_values<Q, kValueLanes>(p, keep, values + d, n, D, acc);
    for (int q = 0; q < Q; ++q) acc[q] += 16 * kValueLanes;
  }
  for (; d < D; d += 16) {
    add_values<Q, 1>(p, keep, values + d, n, D, acc);
    for (int q = 0; q < Q; ++q) acc[q] += 16;
  }
}

template <int Q>
inline void attend_queries(int64_t count, const float* const* queries, const float* keys,
                           const float* values, int64_t n, int64_t D, float* const* states) {
  for (; count >= Q; count -= Q, queries += Q, states += Q)
    attend_tile<Q>(queries, keys, values, n, D, states);
  if constexpr (Q > 1) attend_queries<Q - 1>(count, queries, keys, values, n, D, states);
}

template <class T>
void attend(const AttendArgs& a) {
  alignas(64) float keys[16 * kMaxHeadWidth], values[16 * kMaxHeadWidth];
  int64_t D = a.head_width;
  for (int64_t first = 0; first < a.n_keys; first += kKeyTile) {
    int64_t n = a.n_keys - first < kKeyTile ? a.n_keys - first : kKeyTile;
    const std::byte* rows[16];
    for (int64_t j = 0; j < 16; ++j)  // behind the end: a key that is there, masked later
      rows[j] = static_cast<const std::byte*>(a.keys[first + (j < n ? j : 0)]);
    turn_keys<T>(rows, D, keys);
    for (int64_t j = 0; j < n; ++j) {
      const T* v = static_cast<const T*>(a.values[first + j]);
      for (int64_t d = 0; d < D; ++d) values[j * D + d] = load_key(v, d);
    }
    attend_queries<kQueryBlock>(a.n_queries, a.queries, keys, values, n, D, a.states);
  }
}
