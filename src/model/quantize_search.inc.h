// The search of quantize_search.h on PF_LANES groups at once, written with vectors of the compiler;
// each instruction-set file includes it inside its anonymous namespace. No include guard on
// purpose.
//
// Everything happens lane by lane, in the order of one group alone: sums run in eight partial sums,
// whatever is chosen is chosen by masks.

#include "model/quantize_fit.inc.h"

// Improves (d, m) by turns and keeps it where it beats `best`.
template <int N>
inline void improve(const Group<N>& x, Levels levels, const Lanes* sx, Lanes d, Lanes m,
                    Fit* best) {
  Group<N> q;
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
template <int N>
inline void choose(const Group<N>& x, Levels levels, const Fit& best, Lanes plain, Lanes plain_m,
                   Group<N>& q, Fit* out) {
  Group<N> q_plain;
  Fit chosen = stored(x, levels, best.d, best.m, q);
  Fit fallback = stored(x, levels, plain, plain_m, q_plain);
  auto keeps = chosen.error <= fallback.error;
  for (int i = 0; i < N; ++i) q[i] = keeps ? q[i] : q_plain[i];
  out->d = keeps ? chosen.d : fallback.d;
  out->m = keeps ? chosen.m : fallback.m;
}

template <int N>
inline void search_symmetric(const Group<N>& x, Levels levels, float nearest_level, Group<N>& q,
                             Fit* out) {
  Lanes extreme = {};  // the value of largest magnitude, with its sign
  for (int i = 0; i < N; ++i) extreme = magnitude(x[i]) > magnitude(extreme) ? x[i] : extreme;
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

template <int N>
inline void search_with_min(const Group<N>& x, Levels levels, Group<N>& q, Fit* out) {
  Lanes low = x[0], high = x[0], sx = sum_of<N>([&](int i) { return x[i]; });
  for (int i = 1; i < N; ++i) {
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

template <int N>
void search_groups(const QuantSearch& s) {
  Levels levels{s.low, s.high};
  for (int64_t first = 0; first < s.n_groups; first += PF_LANES) {
    int64_t n = std::min<int64_t>(PF_LANES, s.n_groups - first);
    Group<N> x = {}, q;
    for (int64_t l = 0; l < n; ++l)
      for (int i = 0; i < N; ++i) x[i][l] = s.x[(first + l) * N + i];
    Fit fit = {};
    if (s.has_minimum)
      search_with_min(x, levels, q, &fit);
    else
      search_symmetric(x, levels, s.nearest_level, q, &fit);
    for (int64_t l = 0; l < n; ++l) {
      for (int i = 0; i < N; ++i) s.q[(first + l) * N + i] = q[i][l];
      s.d[first + l] = fit.d[l];
      s.m[first + l] = fit.m[l];
    }
  }
}

void search(const QuantSearch& s) {
  if (s.group == kWideQuantGroup)
    search_groups<kWideQuantGroup>(s);
  else
    search_groups<kQuantGroup>(s);
}
