#pragma once
// Rounding. Directed modes of float and double arithmetic run on the host's own unit with its
// rounding mode set (rounding.cc is compiled with -frounding-math); narrowing to any binary format
// is integer arithmetic.

#include <cstdint>

namespace pf::ptxvm {

enum Rounding : uint8_t { kNearest, kZero, kDown, kUp };
enum class Arith : uint8_t { kAdd, kSub, kMul, kDiv, kSqrt, kFma };

float rounded(Arith op, Rounding mode, float a, float b, float c);
double rounded(Arith op, Rounding mode, double a, double b, double c);

// The pattern of v in a binary format with `e` exponent and `m` mantissa bits; NaN gives the
// canonical quiet NaN of PTX (all payload bits set). Exact input, one rounding.
uint64_t narrow(long double v, int e, int m, Rounding mode);

}  // namespace pf::ptxvm
