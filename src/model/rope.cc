#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "model/config.h"

namespace pf {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// Llama 3.1: long waves are stretched, short ones kept, the band between blended.
double llama3(const RopeScaling& s, double inverse) {
  double original = static_cast<double>(s.original_max_position);
  double turns = original * inverse / kTwoPi;  // full turns within the original context
  if (turns < s.low_freq_factor) return inverse / s.factor;
  if (turns > s.high_freq_factor) return inverse;
  double keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - keep) * inverse / s.factor + keep * inverse;
}

// YaRN: dimensions that turn more than beta_fast times are kept, fewer than beta_slow stretched.
struct YarnRamp {
  double low, high;

  YarnRamp(const RopeScaling& s, double theta, double dim) {
    auto dimension_of = [&](double turns) {
      return dim * std::log(static_cast<double>(s.original_max_position) / (turns * kTwoPi)) /
             (2 * std::log(theta));
    };
    low = dimension_of(s.beta_fast);
    high = dimension_of(s.beta_slow);
    if (s.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (high == low) high += 0.001;
  }

  double stretch(double i) const { return std::clamp((i - low) / (high - low), 0.0, 1.0); }
};

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config) {
  check(config.rope_theta > 0, "rotary positions need a base");
  const RopeScaling& s = config.rope_scaling;
  double theta = config.rope_theta, dim = static_cast<double>(config.head_width);
  RopeFrequencies out;
  std::optional<YarnRamp> yarn;
  if (s.kind == RopeScaling::Kind::kYarn) {
    yarn.emplace(s, theta, dim);
    out.attention_factor = s.attention_factor != 0 ? s.attention_factor
                           : s.factor > 1 ? static_cast<float>(0.1 * std::log(double{s.factor}) + 1)
                                          : 1.0f;
  }
  for (int64_t i = 0; i < config.head_width / 2; ++i) {
    double inverse = std::pow(theta, -2.0 * static_cast<double>(i) / dim);
    if (!s.frequency_factors.empty()) {
      inverse /= s.frequency_factors[static_cast<size_t>(i)];
    } else if (s.kind == RopeScaling::Kind::kLinear) {
      inverse /= s.factor;
    } else if (s.kind == RopeScaling::Kind::kLlama3) {
      inverse = llama3(s, inverse);
    } else if (yarn) {
      double keep = (1 - yarn->stretch(static_cast<double>(i))) * s.ext_factor;
      inverse = inverse / s.factor * (1 - keep) + inverse * keep;
    }
    out.inverse.push_back(static_cast<float>(inverse));
  }
  return out;
}

}  // namespace pf
