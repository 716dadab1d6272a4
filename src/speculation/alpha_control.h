#pragma once

namespace pf {

// SPECULATION section 3, formula of source A. Utilisation in percent.
struct AlphaOptions {
  double base = 0.5;
  double busy_from = 60, busy_slope = 0.05 / 5;            // per percent of utilisation above
  double accept_below = 0.65, accept_slope = 0.03 / 0.05;  // per unit of acceptance below
  double least = 0.3, most = 0.8;
  double quiet_below = 30, quiet_most = 0.6;  // low load: no reason to accept repeated pieces
  double smoothing = 0.2;                     // w: weight of the present utilisation
};

// Alpha of the threshold rules as a function of load and acceptance: a busy server keeps more, a
// badly matching draft is held to more. Driven once per step; no clock inside.
class AlphaControl {
 public:
  explicit AlphaControl(const AlphaOptions& options = {}) : options_(options) {}

  // util = w * now + (1 - w) * last, from the first sample on.
  void observe(double utilisation_percent);
  double utilisation() const { return utilisation_; }

  // Both terms of the formula, as they are added to the base.
  double busy_term() const;                          // <= 0
  double acceptance_term(double accept_rate) const;  // >= 0
  double unclamped(double accept_rate) const;
  double alpha(double accept_rate) const;

 private:
  AlphaOptions options_;
  double utilisation_ = 0;
  bool started_ = false;
};

}  // namespace pf
