#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pf {

// Seconds of one pass as a function of its rows, learned from passes as they happen. Kept at knots
// (1..8, then four per octave), linear between them. Three things make it fit for a noisy machine:
// a sample moves its knots by a clipped share of what it says, so that one pause of the machine is
// not believed; what all passes have in common (another clock rate, a busy neighbour, a longer
// context) moves all knots together; and a knot that was not seen for long believes the next sample
// more. It never falls with more rows. Single-threaded; no clock inside.
class CostCurve {
 public:
  // Before anything is measured one row costs `first` and each further one `slope` of that, which
  // had better be too small than too large: what looks cheap is tried, and then known.
  CostCurve(double first, double slope);

  double at(double rows) const;  // seconds; 0 for no rows
  // One pass of so many rows took so long; ignored unless both are positive.
  void observe(double rows, double seconds) { observe(rows, seconds, 1); }
  // As above with less belief: 0 < weight <= 1.
  void observe(double rows, double seconds, double weight);
  // A better guess for one row; only before anything is measured.
  void assume(double first);
  bool measured() const { return n_observed_ > 0; }

  // Rows at which a pass costs twice what one row costs: there the time to read the weights equals
  // the time to compute. The curve goes on beyond its last measured knot with its last slope.
  double knee() const;

 private:
  struct Knot {
    double rows = 1;
    double seconds = 0;  // as measured
    double shown = 0;    // as used: measured or filled in, never falling
    double weight = 0;   // of the samples so far; 0: not measured
    int64_t seen = 0;    // n_observed_ when last measured
  };
  size_t segment_of(double rows) const;  // knots [i, i + 1] around it
  void fill();

  double first_, slope_;
  int64_t n_observed_ = 0;
  double drift_ = 0;  // mean surprise of the last samples
  std::vector<Knot> knots_;
};

}  // namespace pf
