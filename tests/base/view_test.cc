// Truth: row-major layout worked by hand.
#include "base/view.h"

#include <gtest/gtest.h>

namespace pf {
namespace {

TEST(View, IndexesRowMajor) {
  int data[24];
  for (int i = 0; i < 24; ++i) data[i] = i;
  View<int, 3> v{data, {2, 3, 4}};
  EXPECT_EQ(v.size(), 24);
  EXPECT_EQ(v(1, 2, 3), 23);
  EXPECT_EQ(v(0, 1, 2), 6);
  EXPECT_EQ(v[1](0, 1), 13);  // 12 + 1
  EXPECT_EQ(v[1][2](3), 23);
  View<const int, 3> read = v.rows(1, 1);
  EXPECT_EQ(read.shape[0], 1);
  EXPECT_EQ(read(0, 0, 0), 12);
  EXPECT_EQ((View<int, 2>{data, {0, 5}}.rows(0, 0).size()), 0);
}

}  // namespace
}  // namespace pf
