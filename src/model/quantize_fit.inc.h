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
using Group = Lanes[kQuantGroup];

inline Lanes all(float v) { return Lanes{} + v; }
inline Lanes magnitude(Lanes v) { return v < 0.0f ? -v : v; }

inline void round_to(const Group& x, Levels levels, Lanes d, Lanes m, Group& q) {
  Lanes inverse = d != 0.0f ? 1.0f / d : all(0), low = all(levels.low), high = all(levels.high);
  for (int i = 0; i < kQuantGroup; ++i) {
    Lanes v = (x[i] - m) * inverse;
    v = v < low ? low : v;
    v = v > high ? high : v;
    // To nearest, ties to even: adding 1.5 * 2^23 drops the fraction.
    q[i] = (v + 12582912.0f) - 12582912.0f;
  }
}

template <class Term>
inline Lanes sum_of(Term term) {
  Lanes part[8] = {};
  for (int i = 0; i < kQuantGroup; i += 8)
    for (int l = 0; l < 8; ++l) part[l] += term(i + l);
  return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

inline Lanes error_of(const Group& x, const Group& q, Lanes d, Lanes m) {
  return sum_of([&](int i) {
    Lanes e = x[i] - (d * q[i] + m);
    return e * e;
  });
}

// What is stored is d and m in binary16: the numbers q are chosen again for those.
inline Fit stored(const Group& x, Levels levels, Lanes d, Lanes m, Group& q) {
  for (int l = 0; l < PF_LANES; ++l) {
    d[l] = to_float(to_f16(std::clamp(d[l], -kLargest, kLargest)));
    m[l] = to_float(to_f16(std::clamp(m[l], -kLargest, kLargest)));
  }
  round_to(x, levels, d, m, q);
  return {d, m, error_of(x, q, d, m)};
}

// Least squares for w = d q.
inline Fit fit_scale(const Group& x, const Group& q, Lanes d) {
  Lanes qx = sum_of([&](int i) { return q[i] * x[i]; });
  Lanes qq = sum_of([&](int i) { return q[i] * q[i]; });
  d = qq > 0.0f ? qx / qq : d;
  return {d, Lanes{}, error_of(x, q, d, Lanes{})};
}

// Least squares for w = d q + m; sx is the sum of x.
inline Fit fit_scale_and_min(const Group& x, const Group& q, Lanes sx, Lanes d, Lanes m) {
  Lanes sq = sum_of([&](int i) { return q[i]; });
  Lanes qx = sum_of([&](int i) { return q[i] * x[i]; });
  Lanes qq = sum_of([&](int i) { return q[i] * q[i]; });
  Lanes determinant = 32.0f * qq - sq * sq;
  Lanes fitted = (32.0f * qx - sq * sx) / determinant;
  d = determinant > 0.0f ? fitted : d;
  m = determinant > 0.0f ? (sx - fitted * sq) / 32.0f : m;
  return {d, m, error_of(x, q, d, m)};
}
