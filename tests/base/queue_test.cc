// Truth: first in, first out, never more than the capacity, nothing lost, with hand-worked cases
// and a count over several threads.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"

namespace pf {
namespace {

TEST(BoundedQueue, KeepsOrderAndRefusesWhenFull) {
  BoundedQueue<std::unique_ptr<int>> q(2);
  EXPECT_TRUE(q.try_push(std::make_unique<int>(1)));
  EXPECT_TRUE(q.try_push(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);
  EXPECT_FALSE(q.try_push(std::move(third)));
  EXPECT_EQ(*third, 3) << "a refused item stays with the caller";
  EXPECT_EQ(**q.try_pop(), 1);
  EXPECT_EQ(**q.try_pop(), 2);
  EXPECT_FALSE(q.try_pop().has_value());
}

TEST(BoundedQueue, ClosingRefusesNewItemsAndGivesTheRest) {
  BoundedQueue<int> q(4);
  EXPECT_TRUE(q.try_push(7));
  q.close();
  EXPECT_FALSE(q.try_push(8));
  EXPECT_EQ(q.pop(), 7);
  EXPECT_FALSE(q.pop().has_value());
}

TEST(BoundedQueue, WakeEndsOneWaitEvenWhenItComesFirst) {
  BoundedQueue<int> q(1);
  q.wake();
  EXPECT_FALSE(q.pop().has_value());
  EXPECT_TRUE(q.try_push(1));
  EXPECT_EQ(q.pop(), 1);
}

TEST(BoundedQueue, LosesNothingBetweenThreads) {
  BoundedQueue<int> q(8);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      for (int i = 1; i <= 2000;) i += q.try_push(int{i});
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      while (auto v = q.pop()) sum += *v;
    });
  threads[0].join();
  threads[1].join();
  q.close();
  threads[2].join();
  threads[3].join();
  EXPECT_EQ(sum, 2 * 2000 * 2001 / 2);
}

}  // namespace
}  // namespace pf
