#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pf {

// Times in buckets that grow by 2^(1/4), from 1 us to 16 s: fine enough for a percentile of any of
// them, small enough to be copied with every snapshot.
struct TimeHistogram {
  static constexpr size_t kBuckets = 97;
  std::array<int64_t, kBuckets> counts{};  // [i] of times in (upper(i - 1), upper(i)]
  double sum_seconds = 0;

  // Of the last bucket: infinity.
  static double upper(size_t bucket) {
    return bucket + 1 < kBuckets ? 1e-6 * std::exp2(0.25 * static_cast<double>(bucket)) : HUGE_VAL;
  }
  void add(double seconds) {
    double quarter = std::ceil(4 * std::log2(std::max(seconds, 1e-6) * 1e6) - 1e-9);
    ++counts[std::min(static_cast<size_t>(quarter), kBuckets - 1)];
    sum_seconds += seconds;
  }
  int64_t n() const {
    int64_t n = 0;
    for (int64_t c : counts) n += c;
    return n;
  }
  // Upper end of the bucket in which the q-quantile (0..1) of what came after `before` lies; 0 when
  // nothing came.
  double quantile_since(const TimeHistogram& before, double q) const {
    double wanted = q * static_cast<double>(n() - before.n()), seen = 0;
    if (n() == before.n()) return 0;
    for (size_t i = 0; i + 1 < kBuckets; ++i) {
      seen += static_cast<double>(counts[i] - before.counts[i]);
      if (seen >= wanted) return upper(i);
    }
    return upper(kBuckets - 2);
  }
};

// Rows per step, bounds as vLLM's.
struct RowHistogram {
  static constexpr std::array<int32_t, 13> kBounds{1,   8,    16,   32,   64,   128,  256,
                                                   512, 1024, 2048, 4096, 8192, 16384};
  std::array<int64_t, kBounds.size() + 1> counts{};
  int64_t sum = 0;

  void add(int32_t rows) {
    auto at = std::lower_bound(kBounds.begin(), kBounds.end(), rows);
    ++counts[static_cast<size_t>(at - kBounds.begin())];
    sum += rows;
  }
};

}  // namespace pf
