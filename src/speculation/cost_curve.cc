#include "speculation/cost_curve.h"

#include <algorithm>
#include <cmath>

namespace pf {
namespace {

constexpr double kMaxRows = 1 << 16;
constexpr double kGain = 0.04;        // share of a sample that a settled knot takes
constexpr double kStaleGain = 0.001;  // more for each other sample since its last one
constexpr double kMaxGain = 0.1;
constexpr double kDriftKeep = 0.7;      // of the mean of the last samples' surprises
constexpr double kCalm = 0.1;           // of that mean, as a logarithm: noise
constexpr double kSurprisedGain = 0.8;  // more, when sample after sample says that all has changed
constexpr double kCommon = 0.7;         // share of a move that all knots make
constexpr double kSettled = 6;          // samples that make a knot settled
constexpr double kClip = 0.4;           // log of the most that one sample may say to a settled knot
constexpr double kHope = 0.1;           // share by which a knot of one sample may be too dear
constexpr double kEndShare = 0.5;       // of the last measured slope, behind the last measured knot
constexpr double kLeastWeight = 0.4;    // share in a sample from which a new knot is measured

}  // namespace

CostCurve::CostCurve(double first, double slope) : first_(first), slope_(slope) {
  for (double rows = 1; rows <= 8; ++rows) knots_.push_back({.rows = rows});
  for (double octave = 8; octave < kMaxRows; octave *= 2)
    for (int quarter = 1; quarter <= 4; ++quarter)
      knots_.push_back({.rows = octave * (1 + 0.25 * quarter)});
  fill();
}

size_t CostCurve::segment_of(double rows) const {
  if (rows < 8) return rows <= 1 ? 0 : static_cast<size_t>(rows) - 1;
  int exponent = 0;
  double mantissa = std::frexp(std::min(rows, kMaxRows - 1) / 8, &exponent);  // in [0.5, 1)
  return static_cast<size_t>(7 + 4 * (exponent - 1) + static_cast<int>(mantissa * 8) - 4);
}

double CostCurve::at(double rows) const {
  if (rows <= 0) return 0;
  size_t i = segment_of(rows);
  const Knot &a = knots_[i], &b = knots_[i + 1];
  double t = std::max(0.0, rows - a.rows) / (b.rows - a.rows);
  return a.shown + t * (b.shown - a.shown);
}

void CostCurve::observe(double rows, double seconds, double weight) {
  if (!(rows >= 1) || !(seconds > 0)) return;
  size_t i = segment_of(rows);
  double t = std::min(1.0, (rows - knots_[i].rows) / (knots_[i + 1].rows - knots_[i].rows));
  double ratio = std::log(seconds / at(rows));
  ++n_observed_;
  drift_ = kDriftKeep * drift_ + (1 - kDriftKeep) * std::clamp(ratio, -kClip, kClip);
  double surprise = std::min(1.0, std::max(0.0, std::abs(drift_) - kCalm) / kClip);
  double common = 0;
  for (auto [k, share] : {std::pair{i, 1 - t}, {i + 1, t}}) {
    Knot& knot = knots_[k];
    double w = share * weight;
    if (knot.weight == 0) {
      if (share < kLeastWeight) continue;
      knot.seconds = knot.shown * std::exp(ratio);
    } else {
      bool settled = knot.weight >= kSettled;
      double age = static_cast<double>(n_observed_ - knot.seen);
      double gain = std::max(1 / (knot.weight / weight + 1),
                             std::min(kMaxGain, kGain + kStaleGain * (age - 1)));
      gain = std::min(1.0, gain + kSurprisedGain * surprise);
      double move = w * gain * (settled ? std::clamp(ratio, -kClip, kClip) : ratio);
      if (settled) common += kCommon * move, move *= 1 - kCommon;
      knot.seconds *= std::exp(move);
    }
    knot.weight += w;
    knot.seen = n_observed_;
  }
  if (common != 0)
    for (Knot& knot : knots_) knot.seconds *= std::exp(common);
  fill();
}

void CostCurve::assume(double first) {
  if (measured()) return;
  first_ = first;
  fill();
}

// Every guess is on the hopeful side, so that it is tried and then known: a knot of few samples is
// shown a little cheaper; between two knots the curve follows the roofline that fits both (flat
// from the left one, in proportion to the rows at the right one), which no convex curve is far
// below; behind the last one it rises half as fast as in front of it.
void CostCurve::fill() {
  double rise = first_ * slope_;
  auto assumed = [&](const Knot& knot) { return first_ + rise * (knot.rows - 1); };
  const Knot* last = nullptr;
  double end_rise = 0;
  for (size_t k = 0; k < knots_.size(); ++k) {
    Knot& knot = knots_[k];
    if (knot.weight == 0) {
      double on = std::max(slope_ * knots_[0].shown, kEndShare * end_rise);
      knot.shown = last ? last->shown + on * (knot.rows - last->rows) : assumed(knot);
      continue;
    }
    knot.shown = knot.seconds * (1 - kHope / std::sqrt(knot.weight + 1));
    for (size_t j = k; j-- > 0 && knots_[j].weight == 0;) {
      Knot& between = knots_[j];
      if (last == nullptr) {
        between.shown = knot.shown * assumed(between) / assumed(knot);
        continue;
      }
      double t = (between.rows - last->rows) / (knot.rows - last->rows);
      double line = last->shown + t * (knot.shown - last->shown);
      double roof = std::max(between.shown, knot.shown * between.rows / knot.rows);
      between.shown = std::min(line, roof);
    }
    if (last) end_rise = (knot.shown - last->shown) / (knot.rows - last->rows);
    last = &knot;
  }
  double floor = 0;
  for (Knot& knot : knots_) floor = knot.shown = std::max(knot.shown, floor);
}

double CostCurve::knee() const {
  double twice = 2 * at(1);
  size_t last = 0;  // the last measured knot
  for (size_t k = 0; k < knots_.size(); ++k)
    if (knots_[k].weight > 0) last = k;
  for (size_t k = 1; k <= last; ++k) {
    if (knots_[k].shown < twice) continue;
    const Knot &a = knots_[k - 1], &b = knots_[k];
    double t = b.shown > a.shown ? (twice - a.shown) / (b.shown - a.shown) : 1;
    return a.rows + t * (b.rows - a.rows);
  }
  // Not reached yet: from the last measured point on with the mean slope so far.
  const Knot& end = knots_[last];
  double rise = last > 0 ? (end.shown - at(1)) / (end.rows - 1) : 0;
  rise = std::max(rise, 0.001 * at(1));
  return std::max(1.0, end.rows + (twice - end.shown) / rise);
}

}  // namespace pf
