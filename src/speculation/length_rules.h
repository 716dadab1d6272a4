#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

namespace pf {

// The two simple rules of source C: one length for everybody, moved by the share of drafted tokens
// that was kept (0..1, one sample per step). Both aim at 0.7 +- 0.1.
inline constexpr double kTargetRate = 0.7, kRateBand = 0.1;

// The mean of up to 100 samples, 10 at least, moves the length by one; a new length is judged by
// its own samples. 1..10, from 5.
class WindowLength {
 public:
  int32_t length() const { return length_; }
  void observe(double rate) {
    samples_[static_cast<size_t>(n_++ % kWindow)] = rate;
    if (n_ < kLeast) return;
    int32_t n = std::min(n_, kWindow);
    double mean = std::accumulate(samples_.begin(), samples_.begin() + n, 0.0) / n;
    int32_t next = mean > kTargetRate + kRateBand   ? std::min(length_ + 1, 10)
                   : mean < kTargetRate - kRateBand ? std::max(length_ - 1, 1)
                                                    : length_;
    if (next == length_) return;
    length_ = next;
    n_ = 0;
  }

 private:
  static constexpr int32_t kWindow = 100, kLeast = 10;
  int32_t length_ = 5, n_ = 0;
  std::array<double, kWindow> samples_{};
};

// A real number that one sample outside the band moves by 10 %; drafts have its whole part. 1..5.
class RateLength {
 public:
  int32_t length() const { return static_cast<int32_t>(length_); }
  void observe(double rate) {
    if (rate > kTargetRate + kRateBand) length_ = std::min(length_ * 1.1, 5.0);
    if (rate < kTargetRate - kRateBand) length_ = std::max(length_ * 0.9, 1.0);
  }

 private:
  double length_ = 5;
};

}  // namespace pf
