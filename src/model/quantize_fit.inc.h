// What quantize_search.inc.h is made of: numbers q for a scale, a scale for numbers q, and the
// error of both. Included by it, PF_LANES groups at once. No include guard on purpose.

using Lanes [[gnu::vector_size(4 * PF_LANES)]] = float;

constexpr float kLargest = 65504;       // of binary16
constexpr float kVanishing = 0x1p-60f;  // below this a range is 0 in binary16 anyway
constexpr int kFits = 2;                // rounds of least squares from each start

struct Levels {
  float low, high;
};
struct Fit {
  Lanes d, m, error;  // error: sum of squares
};
template <int N>
using Group = Lanes[N];  // N weights of each group

inline Lanes all(float v) { return Lanes{} + v; }
inline Lanes magnitude(Lanes v) { return v < 0.0f ? -v : v; }

template <int N>
inline void round_to(const Group<N>& x, Levels levels, Lanes d, Lanes m, Group<N>& q) {
  Lanes inverse = d != 0.0f ? 1.0f / d : all(0), low = all(levels.low), high = all(levels.high);
  for (int i = 0; i < N; ++i) {
    Lanes v = (x[i] - m) * inverse;
    v = v < low ? low : v;
    v = v > high ? high : v;
    // To nearest, ties to even: adding 1.5 * 2^23 drops the fraction.
    q[i] = (v + 12582912.0f) - 12582912.0f;
  }
}

template <int N, class Term>
inline Lanes sum_of(Term term) {
  Lanes part[8] = {};
  for (int i = 0; i < N; i += 8)
    for (int l = 0; l < 8; ++l) part[l] += term(i + l);
  return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

template <int N>
inline Lanes error_of(const Group<N>& x, const Group<N>& q, Lanes d, Lanes m) {
  return sum_of<N>([&](int i) {
    Lanes e = x[i] - (d * q[i] + m);
    return e * e;
  });
}

// What is stored is d and m in binary16: the numbers q are chosen again for those.
template <int N>
inline Fit stored(const Group<N>& x, Levels levels, Lanes d, Lanes m, Group<N>& q) {
  for (int l = 0; l < PF_LANES; ++l) {
    d[l] = to_float(to_f16(std::clamp(d[l], -kLargest, kLargest)));
    m[l] = to_float(to_f16(std::clamp(m[l], -kLargest, kLargest)));
  }
  round_to(x, levels, d, m, q);
  return {d, m, error_of(x, q, d, m)};
}

// Least squares for w = d q.
template <int N>
inline Fit fit_scale(const Group<N>& x, const Group<N>& q, Lanes d) {
  Lanes qx = sum_of<N>([&](int i) { return q[i] * x[i]; });
  Lanes qq = sum_of<N>([&](int i) { return q[i] * q[i]; });
  d = qq > 0.0f ? qx / qq : d;
  return {d, Lanes{}, error_of(x, q, d, Lanes{})};
}

// Least squares for w = d q + m; sx is the sum of x.
template <int N>
inline Fit fit_scale_and_min(const Group<N>& x, const Group<N>& q, Lanes sx, Lanes d, Lanes m) {
  Lanes sq = sum_of<N>([&](int i) { return q[i]; });
  Lanes qx = sum_of<N>([&](int i) { return q[i] * x[i]; });
  Lanes qq = sum_of<N>([&](int i) { return q[i] * q[i]; });
  Lanes determinant = float{N} * qq - sq * sq;
  Lanes fitted = (float{N} * qx - sq * sx) / determinant;
  d = determinant > 0.0f ? fitted : d;
  m = determinant > 0.0f ? (sx - fitted * sq) / float{N} : m;
  return {d, m, error_of(x, q, d, m)};
}
