#include "ptxvm/rounding.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>

namespace pf::ptxvm {
namespace {

template <class T>
T apply(Arith op, Rounding mode, T a0, T b0, T c0) {
  volatile T a = a0, b = b0, c = c0;  // nothing may move across fesetround
  static constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  std::fesetround(kModes[mode]);
  volatile T r = 0;
  switch (op) {
    case Arith::kAdd:
      r = a + b;
      break;
    case Arith::kSub:
      r = a - b;
      break;
    case Arith::kMul:
      r = a * b;
      break;
    case Arith::kDiv:
      r = a / b;
      break;
    case Arith::kSqrt:
      r = std::sqrt(T(a));
      break;
    case Arith::kFma:
      r = std::fma(T(a), T(b), T(c));
      break;
  }
  std::fesetround(FE_TONEAREST);
  return r;
}

}  // namespace

float rounded(Arith op, Rounding mode, float a, float b, float c) {
  return apply<float>(op, mode, a, b, c);
}
double rounded(Arith op, Rounding mode, double a, double b, double c) {
  return apply<double>(op, mode, a, b, c);
}

uint64_t narrow(long double v, int e, int m, Rounding mode) {
  uint64_t sign = std::signbit(v) ? uint64_t{1} << (e + m) : 0;
  uint64_t infinity = ((uint64_t{1} << e) - 1) << m;
  if (std::isnan(v)) return infinity | ((uint64_t{1} << m) - 1);
  long double x = std::fabs(v);
  if (std::isinf(v)) return sign | infinity;
  if (x == 0) return sign;
  int bias = (1 << (e - 1)) - 1, exponent = 0;
  std::frexp(x, &exponent);
  int ulp = std::max(exponent - 1, 1 - bias) - m;  // exponent of the last place
  long double scaled = std::ldexp(x, -ulp), whole = std::floor(scaled), rest = scaled - whole;
  auto q = static_cast<uint64_t>(whole);
  bool away = mode == kNearest ? rest > 0.5L || (rest == 0.5L && (q & 1))
              : mode == kZero  ? false
                               : rest > 0 && (mode == kUp) == (sign == 0);
  q += away;
  // q counts last places; a carry into the next binade adds up by itself.
  int biased = ulp + m + bias;
  uint64_t bits = q < (uint64_t{1} << m) ? q : q + (static_cast<uint64_t>(biased - 1) << m);
  if (bits >= infinity) {
    bool to_infinity =
        mode == kNearest || (mode == kUp && sign == 0) || (mode == kDown && sign != 0);
    bits = to_infinity ? infinity : infinity - 1;
  }
  return sign | bits;
}

}  // namespace pf::ptxvm
