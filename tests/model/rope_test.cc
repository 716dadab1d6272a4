// Truth: the papers' formulas as float64 loops that share no code with src/.
#include <gtest/gtest.h>

#include <cmath>

#include "model/config.h"

namespace pf {
namespace {

using Kind = RopeScaling::Kind;

ModelConfig config_of(float theta, int64_t head_width) {
  ModelConfig c;
  c.rope_theta = theta;
  c.head_width = head_width;
  return c;
}

// One rounding to float: half an ulp, 2^-24 relative.
void expect_inverse(const ModelConfig& c, const std::vector<double>& want) {
  RopeFrequencies got = rope_frequencies(c);
  ASSERT_EQ(got.inverse.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got.inverse[i], want[i], want[i] * 0x1.1p-24) << i;
  }
}

TEST(Rope, PlainAndLinear) {
  for (int64_t d : {2, 64, 128}) {
    ModelConfig c = config_of(100000, d);
    std::vector<double> plain, linear;
    for (int64_t i = 0; i < d / 2; ++i) {
      plain.push_back(1 / std::pow(100000.0, 2.0 * double(i) / double(d)));
      linear.push_back(plain.back() / 4);
    }
    expect_inverse(c, plain);
    c.rope_scaling.kind = Kind::kLinear;
    c.rope_scaling.factor = 4;
    expect_inverse(c, linear);
    EXPECT_EQ(rope_frequencies(c).attention_factor, 1);
  }
}

TEST(Rope, Llama3StretchesLongWavesOnly) {
  ModelConfig c = config_of(500000, 128);
  c.rope_scaling = {.kind = Kind::kLlama3, .factor = 8, .original_max_position = 8192};
  std::vector<double> want;
  for (int i = 0; i < 64; ++i) {
    double f = 1 / std::pow(500000.0, i / 64.0), wavelength = 2 * M_PI / f;
    if (wavelength > 8192 / 1.0) {
      want.push_back(f / 8);
    } else if (wavelength < 8192 / 4.0) {
      want.push_back(f);
    } else {
      double smooth = (8192 / wavelength - 1) / (4 - 1);
      want.push_back((1 - smooth) * f / 8 + smooth * f);
    }
  }
  EXPECT_EQ(want[0], 1);
  EXPECT_LT(want[63], 1 / std::pow(500000.0, 63 / 64.0) / 7);
  expect_inverse(c, want);
}

TEST(Rope, FactorsOfAFileDivide) {
  ModelConfig c = config_of(10000, 4);
  c.rope_scaling.kind = Kind::kLlama3;
  c.rope_scaling.frequency_factors = {1, 8};
  expect_inverse(c, {1, 0.01 / 8});
}

TEST(Rope, YarnBlendsByTurns) {
  ModelConfig c = config_of(1000000, 128);
  c.rope_scaling = {.kind = Kind::kYarn, .factor = 4, .original_max_position = 32768};
  // Peng et al. 2023: a dimension turns original * f / 2 pi times within the original context.
  auto dimension = [](double turns) {
    return 128 * std::log(32768 / (turns * 2 * M_PI)) / (2 * std::log(1e6));
  };
  double low = std::floor(dimension(32)), high = std::ceil(dimension(1));
  std::vector<double> want;
  for (int i = 0; i < 64; ++i) {
    double f = 1 / std::pow(1e6, i / 64.0);
    double stretch = i <= low ? 0 : i >= high ? 1 : (i - low) / (high - low);
    want.push_back(f / 4 * stretch + f * (1 - stretch));
  }
  EXPECT_EQ(want[0], 1);
  expect_inverse(c, want);
  EXPECT_FLOAT_EQ(rope_frequencies(c).attention_factor, float(0.1 * std::log(4.0) + 1));
  c.rope_scaling.attention_factor = 0.75f;
  EXPECT_EQ(rope_frequencies(c).attention_factor, 0.75f);
}

TEST(Rope, YarnWithoutExtrapolationIsLinear) {
  ModelConfig c = config_of(10000, 8);
  c.rope_scaling = {.kind = Kind::kYarn, .factor = 2, .original_max_position = 64};
  c.rope_scaling.ext_factor = 0;
  expect_inverse(c, {0.5, 0.05, 0.005, 0.0005});
}

}  // namespace
}  // namespace pf
