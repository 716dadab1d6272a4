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
// a * b + c of 16-bit floats in one rounding: the sum as a double rounded to odd, so that the
// second rounding cannot go wrong (Boldo and Melquiond 2008).
double fma_to_odd(double a, double b, double c);

}  // namespace pf::ptxvm
