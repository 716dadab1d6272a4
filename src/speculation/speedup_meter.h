#pragma once

#include <algorithm>
#include <cstdint>

namespace pf {

// "Speed-up now" as a measurement: what K = 0 would have taken for the tokens that came, over what
// the steps took, drafts or not. A step with K = 0 takes as long as the target's pass of one row a
// sequence, which the cost curve knows at any time, and by how much longer is measured in the steps
// with K = 0, which come now and then. So a machine that becomes slower becomes so on both sides.
class SpeedupMeter {
 public:
  // What steps came to so far; the speed-up of a while is the difference of two.
  struct Total {
    double plain_seconds = 0, seconds = 0;  // with K = 0; as it was
    // 0: nothing was decoded in between, or it is not known yet what K = 0 takes.
    double speedup_since(const Total& before) const {
      const double took = seconds - before.seconds;
      return took > 0 ? (plain_seconds - before.plain_seconds) / took : 0;
    }
  };

  // `pass`: seconds of the target's pass of n_sequences rows as it would be now. `drafted`:
  // somebody did. Requires: n_sequences > 0.
  void observe(int32_t n_sequences, int64_t n_tokens, bool drafted, double pass, double seconds) {
    if (!(pass > 0) || !(seconds > 0)) return;
    if (!drafted) learn_overhead(seconds / pass);
    if (overhead_ == 0) return;
    total_.plain_seconds += static_cast<double>(n_tokens) / n_sequences * pass * overhead_;
    total_.seconds += seconds;
  }
  const Total& total() const { return total_; }

 private:
  static constexpr double kWeight =
      0.1;  // of the newest step; a pause counts as half as long again
  void learn_overhead(double sample) {
    overhead_ = overhead_ == 0
                    ? sample
                    : overhead_ + kWeight * (std::min(sample, 1.5 * overhead_) - overhead_);
  }

  double overhead_ = 0;  // a step with K = 0 over the target's pass in it; 0: none was measured
  Total total_;
};

}  // namespace pf
