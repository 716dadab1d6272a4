// Truth: the known answers that the authors of Philox publish with Random123 (kat_vectors).
#include "base/philox.h"

#include <gtest/gtest.h>

namespace pf {
namespace {

TEST(Philox, MatchesKnownAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0xffffffffffffffffull, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformNeverReachesEitherEnd) {
  EXPECT_GT(uniform(0u), 0.0f);
  EXPECT_LT(uniform(0xffffffffu), 1.0f);
  EXPECT_GT(uniform(0u, 0u), 0.0);
  EXPECT_LT(uniform(0xffffffffu, 0xffffffffu), 1.0);
}

}  // namespace
}  // namespace pf
