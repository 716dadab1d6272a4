#include "speculation/alpha_control.h"

#include <algorithm>

namespace pf {

void AlphaControl::observe(double now) {
  double w = started_ ? options_.smoothing : 1;
  utilisation_ = w * now + (1 - w) * utilisation_;
  started_ = true;
}

double AlphaControl::busy_term() const {
  return -std::max(0.0, (utilisation_ - options_.busy_from) * options_.busy_slope);
}

double AlphaControl::acceptance_term(double accept_rate) const {
  return std::max(0.0, (options_.accept_below - accept_rate) * options_.accept_slope);
}

double AlphaControl::unclamped(double accept_rate) const {
  return options_.base + busy_term() + acceptance_term(accept_rate);
}

double AlphaControl::alpha(double accept_rate) const {
  double alpha = std::clamp(unclamped(accept_rate), options_.least, options_.most);
  return utilisation_ < options_.quiet_below ? std::min(alpha, options_.quiet_most) : alpha;
}

}  // namespace pf
