// Scores of queries and keys, the first half of attend.inc.h: what it says of T, Lanes and the
// order of sums holds here. No include guard.

// Up to kQueryBlock queries and what of the present tile each sees: keys [from, upto), not empty.
struct QueryBlock {
  const float* query[kQueryBlock];
  float* state[kQueryBlock];
  int64_t from[kQueryBlock], upto[kQueryBlock];
  const void *const *next_keys, *const *next_values;  // as in AttendArgs, of this tile's groups
};
using Scores = float[kKeyTile];

template <class T>
inline constexpr int kParts = 4 / sizeof(T);  // of a key in one word
template <class T>
inline constexpr bool kScaled = sizeof(T) == 1;

// The 16 scales behind a group of keys or values.
inline const float* scales_of(const void* group, int64_t D) {
  return reinterpret_cast<const float*>(static_cast<const int8_t*>(group) + 16 * D);
}

// Parts kPart, kPart + 1... of the words at d, each over all queries and groups.
template <class T, int kPart, int Q, int G>
inline void add_parts(const QueryBlock& b, const void* const* keys, int64_t d, Lanes (&sum)[Q][G]) {
  Lanes part[G];
  PF_UNROLL for (int g = 0; g < G; ++g) part[g] =
      load_part<kPart>(static_cast<const T*>(keys[g]) + d * 16);
  PF_UNROLL for (int q = 0; q < Q; ++q) {
    Lanes x = splat(b.query[q][d + kPart]);
    PF_UNROLL for (int g = 0; g < G; ++g) sum[q][g] = fma_lanes(x, part[g], sum[q][g]);
  }
  if constexpr (kPart + 1 < kParts<T>) add_parts<T, kPart + 1>(b, keys, d, sum);
}

// Dot products of Q queries with G groups of 16 keys, from group `at` on: one sum each, d upward.
template <class T, int Q, int G>
inline void score_groups(const QueryBlock& b, const void* const* keys, int64_t at, int64_t D,
                         Scores* scores) {
  Lanes sum[Q][G];
  PF_UNROLL for (int q = 0; q < Q; ++q) PF_UNROLL for (int g = 0; g < G; ++g) sum[q][g] =
      splat(0.0f);
  for (int64_t d = 0; d < D; d += kParts<T>) {
    PF_UNROLL for (int g = 0; g < G; ++g) {  // a line each
      __builtin_prefetch(static_cast<const T*>(b.next_keys[at + g]) + d * 16, 0, 2);
      __builtin_prefetch(static_cast<const T*>(b.next_values[at + g]) + d * 16, 0, 2);
    }
    add_parts<T, 0>(b, keys, d, sum);
  }
  if constexpr (kScaled<T>) {
    PF_UNROLL for (int g = 0; g < G; ++g) {
      Lanes scale = load_lanes(scales_of(keys[g], D));
      PF_UNROLL for (int q = 0; q < Q; ++q) sum[q][g] = mul_lanes(sum[q][g], scale);
    }
  }
  PF_UNROLL for (int q = 0; q < Q; ++q) PF_UNROLL for (int g = 0; g < G; ++g)
      store_lanes(scores[q] + 16 * g, sum[q][g]);
}

template <class T, int Q, int G>
inline void score_keys(const QueryBlock& b, const void* const* keys, int64_t n, int64_t D,
                       Scores* scores, int64_t at = 0) {
  for (; n - at >= G; at += G)
    score_groups<T, Q, G>(b, keys + at, at, D, reinterpret_cast<Scores*>(&scores[0][0] + 16 * at));
  if constexpr (G > 1) score_keys<T, Q, G - 1>(b, keys, n, D, scores, at);
}
