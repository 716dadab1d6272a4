// Truth: each thread runs each call exactly once, counted; ranges cover [0, n) without overlap.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace pf {
namespace {

TEST(ThreadPool, EveryThreadRunsEveryCallOnce) {
  for (int n : {1, 2, 5}) {
    ThreadPool pool(n);
    std::vector<int> calls(n, 0);
    for (int i = 0; i < 200; ++i) {
      if (i == 50) pool.begin();
      if (i == 150) pool.end();
      pool.run([&](int t) { ++calls[t]; });
    }
    EXPECT_EQ(calls, std::vector<int>(n, 200));
  }
}

TEST(ThreadPool, BarrierOrdersPhases) {
  ThreadPool pool(3);
  std::vector<int> first(3, 0), seen(3, 0);
  pool.run([&](int t) {
    for (int phase = 1; phase <= 100; ++phase) {
      first[t] = phase;
      pool.barrier().wait();
      for (int o = 0; o < 3; ++o) seen[t] += first[o] == phase;
      pool.barrier().wait();
    }
  });
  EXPECT_EQ(seen, std::vector<int>(3, 300));
}

TEST(SplitRange, CoversEverythingInGrains) {
  for (int64_t n : {0, 1, 15, 16, 17, 1000})
    for (int parts : {1, 2, 3, 7}) {
      int64_t at = 0;
      for (int p = 0; p < parts; ++p) {
        Range r = split_range(n, 16, parts, p);
        EXPECT_EQ(r.begin, at);
        EXPECT_TRUE(r.end == n || r.end % 16 == 0);
        at = r.end;
      }
      EXPECT_EQ(at, n);
    }
}

}  // namespace
}  // namespace pf
