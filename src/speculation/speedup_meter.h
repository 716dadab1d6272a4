#pragma once

#include <cstdint>

#include "speculation/cost_curve.h"

namespace pf {

// "Speed-up now" as a measurement: tokens per second of the steps that drafted over those of steps
// with K = 0 at the same number of sequences, whole step times on both sides.
class SpeedupMeter {
 public:
  void observe_plain(int32_t n_sequences, double seconds) { plain_.observe(n_sequences, seconds); }
  void observe_drafted(int32_t n_sequences, int64_t n_tokens, double seconds) {
    if (!plain_.measured() || n_sequences <= 0 || !(seconds > 0)) return;
    plain_seconds_ = kKeep * plain_seconds_ +
                     static_cast<double>(n_tokens) / n_sequences * plain_.at(n_sequences);
    seconds_ = kKeep * seconds_ + seconds;
  }
  // 1 before there is anything to compare.
  double ratio() const { return seconds_ > 0 ? plain_seconds_ / seconds_ : 1; }

 private:
  static constexpr double kKeep = 0.998;  // about the last 500 steps
  CostCurve plain_{1e-3, 0.02};           // seconds of a step with K = 0 by its sequences
  double plain_seconds_ = 0, seconds_ = 0;
};

}  // namespace pf
