#pragma once

#include <cstdint>

namespace pf {

inline constexpr int kQuantGroup = 32, kWideQuantGroup = 128;

// The search behind groups of weights, w = d q + m with whole q in [low, high].
//
// For fixed q the best d and m are a least-squares fit; for fixed d and m the best q is the nearest
// whole number. Going to and fro ends in a local optimum, so it is begun from many ranges: the
// group's own and ones that are a little narrower (large weights are then clipped, the many small
// ones gain) or wider. All weights count alike: without activations nothing says that one matters
// more. d and m come rounded to binary16, and q is chosen for those.
struct QuantSearch {
  const float* x = nullptr;  // [n_groups, group], magnitudes up to 65504
  int64_t n_groups = 0;
  int group = kQuantGroup;   // or kWideQuantGroup
  bool has_minimum = false;  // else m = 0 and the sign of d is free
  float low = 0, high = 0;   // of q, inclusive
  float nearest_level = 0;   // without a minimum: the plain choice of q for the largest magnitude
  float* q = nullptr;        // [n_groups, group]: whole numbers
  float* d = nullptr;        // [n_groups]
  float* m = nullptr;        // [n_groups]
};

// Every group stands in one lane, so that all groups of a register are searched at once and a
// group's result has the same bits whatever the width. The widest that the machine has; the others
// are null where it lacks the instructions.
using QuantSearcher = void (*)(const QuantSearch&);
QuantSearcher choose_quant_searcher();
QuantSearcher quant_searcher_portable();
QuantSearcher quant_searcher_avx2();
QuantSearcher quant_searcher_avx512();

}  // namespace pf
