// The search behind each block of 32 weights.
//
// A block stores w = d * q + m with whole q. For fixed q the best d and m are a least-squares fit;
// for fixed d and m the best q is the nearest whole number. Going to and fro ends in a local
// optimum, so it is begun from many ranges: the group's own and ones that are a little narrower
// (large weights are then clipped, the many small ones gain) or wider. All weights count alike:
// without activations nothing says that one matters more.
//
// The loops over a block have no branches, so that g++ -O3 vectorises them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "model/quantize.h"

namespace pf {
namespace {

constexpr int kGroup = 32;
constexpr float kLargest = 65504;       // of binary16
constexpr float kVanishing = 0x1p-60f;  // below this a range is 0 in binary16 anyway
constexpr int kFits = 2;                // rounds of least squares from each start

struct Fit {
  float d = 0, m = 0;
  float error = 0;  // sum of squares
};

// To nearest, ties to even: adding 1.5 * 2^23 drops the fraction. Requires: |v| < 2^22.
float nearest(float v) { return (v + 12582912.0f) - 12582912.0f; }

struct Levels {
  float low, high;  // of q, inclusive
};

void round_to(const float* x, Levels levels, float d, float m, float* q) {
  float inverse = d != 0 ? 1 / d : 0;
  for (int i = 0; i < kGroup; ++i) {
    float v = (x[i] - m) * inverse;
    v = v < levels.low ? levels.low : v;
    v = v > levels.high ? levels.high : v;
    q[i] = nearest(v);
  }
}

// The sum of term(i) over the group, in eight lanes so that it vectorises without reordering.
template <class Term>
inline float sum_of(Term term) {
  constexpr int kLanes = 8;
  float lane[kLanes] = {};
  for (int i = 0; i < kGroup; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) lane[l] += term(i + l);
  }
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

float error_of(const float* x, const float* q, float d, float m) {
  return sum_of([=](int i) {
    float e = x[i] - (d * q[i] + m);
    return e * e;
  });
}

// What is stored is d and m in binary16: the numbers q are chosen again for those.
Fit stored(const float* x, Levels levels, float d, float m, float* q) {
  Fit fit;
  fit.d = to_float(to_f16(std::clamp(d, -kLargest, kLargest)));
  fit.m = to_float(to_f16(std::clamp(m, -kLargest, kLargest)));
  round_to(x, levels, fit.d, fit.m, q);
  fit.error = error_of(x, q, fit.d, fit.m);
  return fit;
}

// Least squares for w = d * q.
Fit fit_scale(const float* x, const float* q, float d) {
  float qx = sum_of([=](int i) { return q[i] * x[i]; });
  float qq = sum_of([=](int i) { return q[i] * q[i]; });
  if (qq > 0) d = qx / qq;
  return {d, 0, error_of(x, q, d, 0)};
}

// Least squares for w = d * q + m.
Fit fit_scale_and_min(const float* x, const float* q, float d, float m) {
  float sq = sum_of([=](int i) { return q[i]; });
  float sx = sum_of([=](int i) { return x[i]; });
  float qx = sum_of([=](int i) { return q[i] * x[i]; });
  float qq = sum_of([=](int i) { return q[i] * q[i]; });
  float determinant = kGroup * qq - sq * sq;
  if (determinant > 0) {
    d = (kGroup * qx - sq * sx) / determinant;
    m = (sx - d * sq) / kGroup;
  }
  return {d, m, error_of(x, q, d, m)};
}

// Improves (d, m) by turns and keeps it where it beats `best`.
void improve(const float* x, Levels levels, bool has_min, float d, float m, Fit* best) {
  float q[kGroup];
  for (int turn = 0; turn < kFits; ++turn) {
    round_to(x, levels, d, m, q);
    Fit fit = has_min ? fit_scale_and_min(x, q, d, m) : fit_scale(x, q, d);
    if (fit.error < best->error) *best = fit;
    d = fit.d;
    m = fit.m;
  }
}

// The block's d (the sign is free) and its q; `nearest_level` is the plain choice for the largest
// magnitude, `levels` what q may be.
Fit search_symmetric(const float* x, Levels levels, float nearest_level, float* q) {
  float extreme = 0;  // the value of largest magnitude, with its sign
  for (int i = 0; i < kGroup; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  if (std::fabs(extreme) < kVanishing) return stored(x, levels, 0, 0, q);
  float plain = extreme / nearest_level;
  Fit best{plain, 0, INFINITY};
  for (int step = -6; step <= 6; ++step) {
    float level = nearest_level * (1 + 0.03f * static_cast<float>(step));
    improve(x, levels, false, extreme / level, 0, &best);
    if (levels.low != -levels.high) improve(x, levels, false, -extreme / level, 0, &best);
  }
  float q_plain[kGroup];
  Fit chosen = stored(x, levels, best.d, 0, q);
  Fit fallback = stored(x, levels, plain, 0, q_plain);
  if (chosen.error <= fallback.error) return chosen;
  std::copy(q_plain, q_plain + kGroup, q);
  return fallback;
}

Fit search_with_min(const float* x, Levels levels, float* q) {
  float low = *std::min_element(x, x + kGroup), high = *std::max_element(x, x + kGroup);
  if (high - low < kVanishing) return stored(x, levels, 0, low, q);
  float plain = (high - low) / levels.high;
  Fit best{plain, low, INFINITY};
  for (int step = -2; step <= 6; ++step) {  // shrink from both sides, from below, from above
    float cut = 0.02f * static_cast<float>(step) * (high - low);
    improve(x, levels, true, (high - low - 2 * cut) / levels.high, low + cut, &best);
    if (step == 0) continue;
    improve(x, levels, true, (high - low - cut) / levels.high, low + cut, &best);
    improve(x, levels, true, (high - low - cut) / levels.high, low, &best);
  }
  float q_plain[kGroup];
  Fit chosen = stored(x, levels, best.d, best.m, q);
  Fit fallback = stored(x, levels, plain, low, q_plain);
  if (chosen.error <= fallback.error) return chosen;
  std::copy(q_plain, q_plain + kGroup, q);
  return fallback;
}

std::byte* put_f16(std::byte* out, float v) {
  f16 h = to_f16(v);
  std::memcpy(out, &h.bits, 2);
  return out + 2;
}

// 16 bytes: q[0..15] in the low nibbles, q[16..31] in the high ones.
void put_nibbles(std::byte* out, const float* q, int offset) {
  for (int j = 0; j < kGroup / 2; ++j) {
    int low = static_cast<int>(q[j]) + offset, high = static_cast<int>(q[j + 16]) + offset;
    out[j] = static_cast<std::byte>(low | high << 4);
  }
}

void quantize_block(TensorType type, const float* x, std::byte* out) {
  float q[kGroup];
  if (type == TensorType::kQ4_1) {
    Fit fit = search_with_min(x, {0, 15}, q);
    put_nibbles(put_f16(put_f16(out, fit.d), fit.m), q, 0);
  } else if (type == TensorType::kQ4_0) {
    Fit fit = search_symmetric(x, {-8, 7}, -8, q);
    put_nibbles(put_f16(out, fit.d), q, 8);
  } else {
    Fit fit = search_symmetric(x, {-127, 127}, 127, q);
    out = put_f16(out, fit.d);
    for (int j = 0; j < kGroup; ++j) {
      out[j] = static_cast<std::byte>(static_cast<int8_t>(static_cast<int>(q[j])));
    }
  }
}

}  // namespace

Status quantize_row(TensorType type, const float* x, int64_t n, std::byte* out) {
  check(can_quantize(type), "a type without a quantiser");
  check(n % kGroup == 0, "a row that is no whole number of groups");
  bool ok = true;
  for (int64_t i = 0; i < n; ++i) ok &= std::fabs(x[i]) <= kLargest;  // false for NaN
  if (!ok) return invalid("holds NaN, infinity or a magnitude above 65504");
  int64_t bytes = block_shape(type).bytes;
  for (int64_t i = 0; i < n; i += kGroup, out += bytes) quantize_block(type, x + i, out);
  return {};
}

}  // namespace pf
