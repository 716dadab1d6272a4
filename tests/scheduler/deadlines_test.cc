// Truth: a std::map from requests to their times, searched as a whole (level 5, model-based).
#include "scheduler/deadlines.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace pf {
namespace {

TEST(Deadlines, GiveWhatAMapOfAllTimesGivesWhoeverComesAndGoes) {
  std::mt19937 random(11);
  auto below = [&](uint32_t n) { return random() % n; };
  Deadlines deadlines;
  std::map<uint64_t, int64_t> model;  // ticket -> time
  int n_due = 0, n_gone = 0;
  uint64_t last_ticket = 0;
  for (int64_t now_us = 0; now_us < 20'000; ++now_us) {
    for (uint32_t i = below(3); i > 0; --i) {
      // Some are late already, some share a moment, some have all the time there is.
      int64_t at_us = below(5) == 0 ? kNever : now_us - 3 + below(200);
      deadlines.add(++last_ticket, at_us);
      if (at_us != kNever) model[last_ticket] = at_us;
    }
    if (!model.empty() && below(2) == 0) {  // one ends by itself, at times twice
      auto it = model.begin();
      std::advance(it, below(static_cast<uint32_t>(model.size())));
      for (uint32_t i = 1 + below(2); i > 0; --i) deadlines.remove(it->first, it->second);
      model.erase(it);
      ++n_gone;
    }
    if (below(4) > 0) continue;  // not every step is on time
    int64_t before_us = INT64_MIN;
    while (std::optional<uint64_t> ticket = deadlines.pop_due(now_us)) {
      ASSERT_TRUE(model.contains(*ticket));
      EXPECT_LE(model[*ticket], now_us);
      EXPECT_GE(model[*ticket], before_us) << "the earliest first";
      before_us = model[*ticket];
      model.erase(*ticket);
      ++n_due;
    }
    for (auto& [ticket, at_us] : model) ASSERT_GT(at_us, now_us) << "forgotten";
    ASSERT_EQ(deadlines.size(), model.size());
  }
  EXPECT_GT(n_due, 1000);
  EXPECT_GT(n_gone, 1000);
}

}  // namespace
}  // namespace pf
