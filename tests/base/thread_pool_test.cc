// Truth: each thread runs each call exactly once, counted; ranges cover [0, n) without overlap.
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
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

// Threads that arrive long after each other put the early ones to sleep: all must wake.
TEST(ThreadPool, LateThreadsAndLateCallsWakeTheSleepers) {
  ThreadPool pool(3);
  std::atomic<int> met{0};
  for (int call = 0; call < 4; ++call) {
    if (call == 2) pool.begin();
    pool.run([&](int t) {
      for (int late = 0; late < 3; ++late) {
        if (t == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        pool.barrier().wait();
        ++met;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(met.load(), 4 * 3 * 3);
}

TEST(WorkShare, EveryUnitIsTakenOnceAlsoWhenOneThreadDoesAll) {
  for (int threads : {1, 2, 5})
    for (int64_t n : {0, 1, 4, 17, 1000})
      for (int64_t grain : {1, 3, 64}) {
        ThreadPool pool(threads);
        WorkShare share(threads);
        for (int round = 0; round < 2; ++round) {
          std::vector<std::atomic<int>> taken(static_cast<size_t>(n));
          pool.run([&](int t) {
            if (round == 1 && t != threads - 1) return;
            for (Range r; (r = share.take(n, grain, t)).begin < r.end;) {
              EXPECT_LE(r.end - r.begin, grain);
              for (int64_t i = r.begin; i < r.end; ++i) ++taken[static_cast<size_t>(i)];
            }
          });
          share.reset();
          for (auto& count : taken) EXPECT_EQ(count.load(), 1) << n << " by " << grain;
        }
      }
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
