// Truth: hand-worked counts.
#include "kv/block_pool.h"

#include <gtest/gtest.h>

namespace pf {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnceAndThenNone) {
  BlockPool pool(3, 4, 2);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.allocate(), std::nullopt);
  EXPECT_EQ(pool.n_free(), 0);
  pool.release(1);
  EXPECT_EQ(pool.n_free(), 1);
  EXPECT_EQ(pool.allocate(), 1);
}

TEST(BlockPool, TheLastReleaseFrees) {
  BlockPool pool(1, 4, 1);
  BlockId id = *pool.allocate();
  pool.retain(id);
  pool.release(id);
  EXPECT_EQ(pool.references(id), 1);
  EXPECT_EQ(pool.n_free(), 0);
  pool.release(id);
  EXPECT_EQ(pool.n_free(), 1);
}

TEST(BlockPool, ANewBlockIsEmptyInEveryPlane) {
  BlockPool pool(2, 4, 2);
  BlockId id = *pool.allocate();
  pool.set_filled(id, 0, 4);
  pool.set_filled(id, 1, 3);
  EXPECT_EQ(pool.filled(id, 0), 4);
  EXPECT_EQ(pool.filled(id, 1), 3);
  pool.release(id);
  EXPECT_EQ(pool.allocate(), id);
  EXPECT_EQ(pool.filled(id, 0), 0);
  EXPECT_EQ(pool.filled(id, 1), 0);
}

TEST(BlockPoolDeathTest, DiesOfMisuse) {
  BlockPool pool(1, 4, 1);
  EXPECT_DEATH(pool.release(0), "a free block was released");
  EXPECT_DEATH(pool.retain(0), "a free block was retained");
  EXPECT_DEATH(pool.set_filled(*pool.allocate(), 0, 5), "beyond its slots");
}

}  // namespace
}  // namespace pf
