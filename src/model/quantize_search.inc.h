// The search of quantize_search.h on PF_LANES groups at once, written with vectors of the compiler;
// each instruction-set file includes it inside its anonymous namespace. No include guard on
// purpose.
//
// Everything happens lane by lane, in the order of one group alone: sums run in eight partial sums,
// whatever is chosen is chosen by masks.

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

// Improves (d, m) by turns and keeps it where it beats `best`.
inline void improve(const Group& x, Levels levels, const Lanes* sx, Lanes d, Lanes m, Fit* best) {
  Group q;
  for (int turn = 0; turn < kFits; ++turn) {
    round_to(x, levels, d, m, q);
    Fit fit = sx ? fit_scale_and_min(x, q, *sx, d, m) : fit_scale(x, q, d);
    auto better = fit.error < best->error;
    best->d = better ? fit.d : best->d;
    best->m = better ? fit.m : best->m;
    best->error = better ? fit.error : best->error;
    d = fit.d;
    m = fit.m;
  }
}

// The best fit, or the plain one where it is no worse once both are stored.
inline void choose(const Group& x, Levels levels, const Fit& best, Lanes plain, Lanes plain_m,
                   Group& q, Fit* out) {
  Group q_plain;
  Fit chosen = stored(x, levels, best.d, best.m, q);
  Fit fallback = stored(x, levels, plain, plain_m, q_plain);
  auto keeps = chosen.error <= fallback.error;
  for (int i = 0; i < kQuantGroup; ++i) q[i] = keeps ? q[i] : q_plain[i];
  out->d = keeps ? chosen.d : fallback.d;
  out->m = keeps ? chosen.m : fallback.m;
}

inline void search_symmetric(const Group& x, Levels levels, float nearest_level, Group& q,
                             Fit* out) {
  Lanes extreme = {};  // the value of largest magnitude, with its sign
  for (int i = 0; i < kQuantGroup; ++i)
    extreme = magnitude(x[i]) > magnitude(extreme) ? x[i] : extreme;
  Lanes plain = extreme / nearest_level;
  Fit best{plain, Lanes{}, all(INFINITY)};
  for (int step = -6; step <= 6; ++step) {
    float level = nearest_level * (1 + 0.03f * static_cast<float>(step));
    improve(x, levels, nullptr, extreme / level, Lanes{}, &best);
    if (levels.low != -levels.high) improve(x, levels, nullptr, -extreme / level, Lanes{}, &best);
  }
  auto vanishes = magnitude(extreme) < kVanishing;
  best.d = vanishes ? Lanes{} : best.d;
  plain = vanishes ? Lanes{} : plain;
  choose(x, levels, best, plain, Lanes{}, q, out);
}

inline void search_with_min(const Group& x, Levels levels, Group& q, Fit* out) {
  Lanes low = x[0], high = x[0], sx = sum_of([&](int i) { return x[i]; });
  for (int i = 1; i < kQuantGroup; ++i) {
    low = x[i] < low ? x[i] : low;
    high = high < x[i] ? x[i] : high;
  }
  Lanes range = high - low, plain = range / levels.high;
  Fit best{plain, low, all(INFINITY)};
  for (int step = -2; step <= 6; ++step) {  // shrink from both sides, from below, from above
    Lanes cut = 0.02f * static_cast<float>(step) * range;
    improve(x, levels, &sx, (range - 2.0f * cut) / levels.high, low + cut, &best);
    if (step == 0) continue;
    improve(x, levels, &sx, (range - cut) / levels.high, low + cut, &best);
    improve(x, levels, &sx, (range - cut) / levels.high, low, &best);
  }
  auto vanishes = range < kVanishing;
  best.d = vanishes ? Lanes{} : best.d;
  best.m = vanishes ? low : best.m;
  plain = vanishes ? Lanes{} : plain;
  choose(x, levels, best, plain, low, q, out);
}

void search(const QuantSearch& s) {
  Levels levels{s.low, s.high};
  for (int64_t first = 0; first < s.n_groups; first += PF_LANES) {
    int64_t n = std::min<int64_t>(PF_LANES, s.n_groups - first);
    Group x = {}, q;
    for (int64_t l = 0; l < n; ++l)
      for (int i = 0; i < kQuantGroup; ++i) x[i][l] = s.x[(first + l) * kQuantGroup + i];
    Fit fit = {};
    if (s.has_minimum)
      search_with_min(x, levels, q, &fit);
    else
      search_symmetric(x, levels, s.nearest_level, q, &fit);
    for (int64_t l = 0; l < n; ++l) {
      for (int i = 0; i < kQuantGroup; ++i) s.q[(first + l) * kQuantGroup + i] = q[i][l];
      s.d[first + l] = fit.d[l];
      s.m[first + l] = fit.m[l];
    }
  }
}
