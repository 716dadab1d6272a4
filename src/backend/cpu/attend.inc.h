// Attention over tiles of kKeyTile keys, compiled by each instruction-set file for itself: included
// inside its anonymous namespace after Lanes (16 floats: load, store, splat, add, mul, max, fma,
// load_part, max_of, sum_of) and kQueryBlock, kKeyGroups, kValueLanes are defined: queries, groups
// of 16 keys and accumulators side by side. They fill the registers and are no part of any sum: a
// score is one sum over d, an accumulator one over the keys, so a query has the same bits alone and
// in any block. T, what keys and values are held in, is float, bf16 or int8_t: int8 ones enter the
// sums as they are; the key's scale meets the finished score, the value's the weight. No include
// guard.

#include "backend/cpu/score.inc.h"

// acc[16 N] = acc * keep + sum over keys [from, upto) upward of p[key] * value[key].
template <class T, int Q, int N>
inline void add_values(const float* const* p, const float* keep, const void* const* values,
                       int64_t from, int64_t upto, int64_t d, int64_t D, float* const* acc) {
  Lanes sum[Q][N];
  PF_UNROLL for (int q = 0; q < Q; ++q) PF_UNROLL for (int i = 0; i < N; ++i) sum[q][i] =
      mul_lanes(splat(keep[q]), load_lanes(acc[q] + d + 16 * i));
  for (int64_t j = from; j < upto; ++j) {
    const T* v = static_cast<const T*>(values[j / 16]) + j % 16 * D + d;
    Lanes value[N];
    PF_UNROLL for (int i = 0; i < N; ++i) value[i] = load_lanes(v + 16 * i);
    PF_UNROLL for (int q = 0; q < Q; ++q) {
      Lanes weight = splat(p[q][j]);
      PF_UNROLL for (int i = 0; i < N; ++i) sum[q][i] = fma_lanes(weight, value[i], sum[q][i]);
    }
  }
  PF_UNROLL for (int q = 0; q < Q; ++q) PF_UNROLL for (int i = 0; i < N; ++i)
      store_lanes(acc[q] + d + 16 * i, sum[q][i]);
}

template <class T, int Q>
inline void add_all_values(const float* const* p, const float* keep, const void* const* values,
                           int64_t from, int64_t upto, int64_t D, float* const* acc) {
  int64_t d = 0;
  for (; d + 16 * kValueLanes <= D; d += 16 * kValueLanes)
    add_values<T, Q, kValueLanes>(p, keep, values, from, upto, d, D, acc);
  for (; d < D; d += 16) add_values<T, Q, 1>(p, keep, values, from, upto, d, D, acc);
}

// Scores of one query -> weights e^(score - max), in place; returns by what its state shrinks.
inline float weigh(float* p, int64_t from, int64_t upto, int64_t n_groups, float* max, float* sum) {
  std::fill(p, p + from, -INFINITY);
  std::fill(p + upto, p + 16 * n_groups, -INFINITY);
  Lanes most = splat(*max);
  for (int64_t g = 0; g < n_groups; ++g) most = max_lanes(load_lanes(p + 16 * g), most);
  float before = *max, top = max_of(most);
  for (int64_t g = 0; g < n_groups; ++g)
    for (int64_t j = 16 * g; j < 16 * g + 16; ++j) p[j] = exp_nonpositive(p[j] - top);
  Lanes total = splat(0.0f);
  for (int64_t g = 0; g < n_groups; ++g) total = add_lanes(total, load_lanes(p + 16 * g));
  float keep = exp_nonpositive(before - top);
  *max = top;
  *sum = *sum * keep + sum_of(total);
  return keep;
}

// Online softmax (Milakov & Gimelshein 2018): per tile the new maximum, then sum and accumulator
// are scaled once and extended. What all queries of a block see is added together, the edges of
// each alone: a key that a query does not see is never multiplied with, not even by 0.
template <class T, int Q>
inline void attend_block(const QueryBlock& b, const void* const* keys, const void* const* values,
                         int64_t D) {
  alignas(64) Scores p[Q];
  const float* weights[Q];
  float keep[Q];
  int64_t begin = 0, end = kKeyTile, last = 0;
  for (int q = 0; q < Q; ++q) {
    begin = b.from[q] > begin ? b.from[q] : begin;
    end = b.upto[q] < end ? b.upto[q] : end;
    last = b.upto[q] > last ? b.upto[q] : last;
  }
  int64_t n_groups = (last + 15) / 16;
  score_keys<T, Q, kKeyGroups>(b, keys, n_groups, D, p);
  for (int q = 0; q < Q; ++q) {
    weights[q] = p[q];
    keep[q] = weigh(p[q], b.from[q], b.upto[q], n_groups, b.state[q] + D, b.state[q] + D + 1);
    if constexpr (kScaled<T>)
      for (int64_t g = 0; g < n_groups; ++g)
        store_lanes(p[q] + 16 * g,
                    mul_lanes(load_lanes(p[q] + 16 * g), load_lanes(scales_of(values[g], D))));
  }
  if (begin > end) begin = end = last;  // they see nothing together
  auto add_own = [&](int q, int64_t from, int64_t upto) {
    if (from >= upto) return;
    add_all_values<T, 1>(weights + q, keep + q, values, from, upto, D, b.state + q);
    keep[q] = 1;
  };
  for (int q = 0; q < Q; ++q) add_own(q, b.from[q], b.upto[q] < begin ? b.upto[q] : begin);
  add_all_values<T, Q>(weights, keep, values, begin, end, D, b.state);
  std::fill_n(keep, Q, 1.0f);
  for (int q = 0; q < Q; ++q) add_own(q, end, b.upto[q]);
}

template <class T, int Q>
inline void attend_some(int n, const QueryBlock& b, const void* const* keys,
                        const void* const* values, int64_t D) {
  if (n == Q) attend_block<T, Q>(b, keys, values, D);
  if constexpr (Q > 1) attend_some<T, Q - 1>(n, b, keys, values, D);
}

template <class T>
void attend(const AttendArgs& a) {
  for (int64_t first = 0; first < a.n_keys; first += kKeyTile) {
    const void *const *keys = a.keys + first / 16, *const *values = a.values + first / 16;
    QueryBlock b;
    b.next_keys = a.next_keys + first / 16;
    b.next_values = a.next_values + first / 16;
    int n = 0;  // in the block
    for (int64_t q = 0; q < a.n_queries; ++q) {
      int64_t from = a.from[q] - first, upto = a.upto[q] - first;
      from = from > 0 ? from : 0;
      upto = upto < kKeyTile ? upto : kKeyTile;
      if (from >= upto) continue;
      b.query[n] = a.queries[q];
      b.state[n] = a.states[q];
      b.from[n] = from;
      b.upto[n] = upto;
      if (++n < kQueryBlock) continue;
      attend_block<T, kQueryBlock>(b, keys, values, a.head_width);
      n = 0;
      b.next_keys = keys, b.next_values = values;  // once is enough
    }
    attend_some<T, kQueryBlock>(n, b, keys, values, a.head_width);
  }
}
