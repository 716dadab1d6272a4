// Truth: the C library's exp and log in double.
#include "sampling/fast_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sampling/noise.h"

namespace pf {
namespace {

TEST(FastMath, ExpIsWithinItsBound) {
  for (double x = 0; x > -87; x -= 0.0037) {
    double want = std::exp(static_cast<double>(static_cast<float>(x)));
    ASSERT_NEAR(exp_nonpositive(static_cast<float>(x)) / want, 1, 2e-7) << x;
  }
  EXPECT_EQ(exp_nonpositive(0), 1.0f);
  EXPECT_EQ(exp_nonpositive(-88), 0.0f);
  EXPECT_TRUE(std::isnan(exp_nonpositive(std::nanf(""))));
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<float>::infinity()), 0.0f);
}

TEST(FastMath, LogIsWithinItsBound) {
  for (double x = 1e-37; x < 1e37; x *= 1.0137) {
    double want = std::log(static_cast<double>(static_cast<float>(x)));
    ASSERT_NEAR(log_positive(static_cast<float>(x)), want, 3e-7 * std::max(1.0, std::abs(want)))
        << x;
  }
  EXPECT_EQ(log_positive(1.0f), 0.0f);
}

TEST(Gumbel, HasItsMeanAndVarianceAndNeverExceedsItsBound) {
  // Gumbel(0, 1): mean 0.5772, variance pi^2 / 6. With n = 400,000 five standard errors of the
  // mean are 5 * 1.283 / 632 = 0.0102; the variance's are about 0.03.
  double sum = 0, squares = 0;
  const int n = 400000;
  for (int i = 0; i < n; ++i) {
    double g = gumbel({42, 0}, i / 1000, i % 1000);
    ASSERT_LT(g, kMaxGumbel);
    sum += g;
    squares += g * g;
  }
  EXPECT_NEAR(sum / n, 0.57722, 0.0102);
  EXPECT_NEAR(squares / n - sum / n * sum / n, 1.64493, 0.03);
  // The largest value that uniform() can give.
  EXPECT_LT(-log_positive(-log_positive(uniform(0xffffffffu))), kMaxGumbel);
}

TEST(Noise, DependsOnEveryPartOfItsName) {
  PhiloxBlock a = noise({1, 0}, 5, Purpose::kToken);
  EXPECT_EQ(a, noise({1, 0}, 5, Purpose::kToken));
  EXPECT_NE(a, noise({2, 0}, 5, Purpose::kToken));
  EXPECT_NE(a, noise({1, 1}, 5, Purpose::kToken));
  EXPECT_NE(a, noise({1, 0}, 6, Purpose::kToken));
  EXPECT_NE(a, noise({1, 0}, 5, Purpose::kAccept));
  EXPECT_NE(a, noise({1, 0}, 5, Purpose::kToken, 1));
}

}  // namespace
}  // namespace pf
