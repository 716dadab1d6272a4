#pragma once

#include <algorithm>
#include <cstdint>

namespace pf {

// How full a step of so many rows makes the device, in percent: 100 at the knee of the verify curve
// (CostCurve::knee). One stream is always "busy", but hardly fills it.
inline double utilisation_of(int32_t n_rows, double knee_rows) {
  return std::min(100.0, 100 * n_rows / knee_rows);
}

}  // namespace pf
