// Truth: what every row must read, position by position (level 5: random steps); and hand-worked
// plans (level 0).
#include "kernels/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <random>

namespace {
int64_t g_allocations = 0;
}
// Not inlined: GCC 12 would take the malloc inside for the one of a mismatched delete.
[[gnu::noinline]] void* operator new(size_t n) {
  ++g_allocations;
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace pf::kernels {
namespace {

// A step as the engine would hold it.
struct Step {
  int32_t P = 16;
  std::vector<std::vector<int32_t>> tables;
  std::vector<int32_t> positions, visible, first, n;
  std::vector<uint64_t> masks;
  std::vector<AttentionSegment> segments;

  // n_before >= 0: the plain rows and so many nodes were fed in passes before.
  void add(std::vector<int32_t> table, int32_t base, int32_t n_plain,
           const std::vector<int32_t>& parents = {}, int32_t n_before = -1) {
    first.push_back(static_cast<int32_t>(positions.size()));
    for (int32_t i = 0; i < n_plain; ++i) row(base + i, base + i + 1, 0);
    size_t root = positions.size() - 1;
    for (size_t i = 0; i < parents.size(); ++i) {
      size_t above = parents[i] < 0 ? root : root + 1 + size_t(parents[i]);
      row(positions[above] + 1, base + n_plain,
          (parents[i] < 0 ? 0 : masks[above]) | uint64_t{1} << i);
    }
    if (n_before >= 0) {
      auto drop = [&](auto& rows) {
        rows.erase(rows.begin() + first.back(), rows.begin() + first.back() + n_plain + n_before);
      };
      drop(positions), drop(visible), drop(masks);
    }
    n.push_back(static_cast<int32_t>(positions.size()) - first.back());
    tables.push_back(std::move(table));
  }
  void row(int32_t position, int32_t sees, uint64_t mask) {
    positions.push_back(position);
    visible.push_back(sees);
    masks.push_back(mask);
  }
  AttentionRows rows() {
    segments.clear();
    for (size_t s = 0; s < tables.size(); ++s) segments.push_back({first[s], n[s], tables[s]});
    return {positions, visible, masks, segments};
  }
  // Where the key of a position lies for a row.
  int32_t place(std::span<const int32_t> table, size_t row, int32_t position) const {
    int32_t slot = position;
    if (position >= visible[row]) {
      uint64_t mask = masks[row];
      for (int32_t i = visible[row]; i < position; ++i) mask &= mask - 1;
      slot = visible[row] + std::countr_zero(mask);
    }
    return table[size_t(slot / P)] * P + slot % P;
  }
  size_t segment_of(int32_t r) const {
    size_t s = 0;
    while (r >= first[s] + n[s]) ++s;
    return s;
  }
};
std::vector<int32_t> blocks(int32_t from, int32_t count) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (int32_t& b : out) b = from++;
  return out;
}

// Every row meets exactly the positions that it sees, ascending, at its own places.
void expect_complete(Step& step, const AttentionLimits& limits, const AttentionPlan& plan,
                     int32_t first_row, int32_t end_row) {
  std::vector<std::vector<int32_t>> met(step.positions.size());  // positions
  std::vector<bool> part_used(size_t(plan.n_parts()));
  ASSERT_LE(plan.n_parts(), limits.max_parts);
  for (const AttentionItem& item : plan.items()) {
    ASSERT_LE(item.n_rows * (limits.n_heads / limits.n_kv_heads), kItemQueries);
    ASSERT_LE(item.n_runs, kMaxRests + 1);
    for (int32_t i = 0; i < item.n_rows; ++i) {
      auto [r, part] = plan.item_rows()[size_t(item.first_row + i)];
      ASSERT_TRUE(r >= first_row && r < end_row);
      ASSERT_FALSE(part_used[size_t(part)]) << "two items for one part";
      part_used[size_t(part)] = true;
      int32_t unit = plan.row_parts()[size_t(r - first_row)].unit + part -
                     plan.row_parts()[size_t(r - first_row)].first;
      int32_t before = -1;
      for (int32_t k = item.first_run; k < item.first_run + item.n_runs; ++k) {
        const AttentionRun& run = plan.runs()[size_t(k)];
        if (i < run.first || i >= run.first + run.n) continue;
        ASSERT_LE(unit * plan.unit_tokens(), run.begin);
        ASSERT_LE(run.end, (unit + 1) * plan.unit_tokens());
        int32_t begin =
            limits.sliding_window ? step.positions[size_t(r)] + 1 - limits.sliding_window : 0;
        for (int32_t p = std::max(begin, run.begin);
             p < std::min(run.end, step.positions[size_t(r)] + 1); ++p) {
          ASSERT_GT(p, before) << "not in order";
          before = p;
          met[size_t(r)].push_back(p);
          ASSERT_EQ(step.place(plan.tables().subspan(size_t(run.table)), size_t(run.path_row), p),
                    step.place(step.tables[step.segment_of(r)], size_t(r), p))
              << "row " << r << " position " << p;
        }
      }
    }
  }
  for (int32_t r = first_row; r < end_row; ++r) {
    int32_t last = step.positions[size_t(r)],
            begin = limits.sliding_window ? std::max(0, last + 1 - limits.sliding_window) : 0;
    std::sort(met[size_t(r)].begin(), met[size_t(r)].end());  // items come in any order of units
    EXPECT_EQ(met[size_t(r)], blocks(begin, last + 1 - begin)) << "row " << r;
  }
  for (bool used : part_used) EXPECT_TRUE(used);
}

Step random_step(uint32_t seed) {
  std::mt19937 random(seed);
  auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
  Step step;
  int32_t next = 0;
  for (int32_t s = 0, n = 1 + below(6); s < n; ++s) {
    int32_t base = below(3) ? below(600) : below(3000),
            n_plain = below(4) ? 1 + below(3) : 1 + below(90);
    std::vector<int32_t> parents, table;
    for (int32_t i = 0, m = below(2) ? below(20) : 0; i < m; ++i)
      parents.push_back(below(uint32_t(i) + 1) - 1);
    int32_t n_blocks = (base + n_plain + static_cast<int32_t>(parents.size()) + 15) / 16;
    if (s > 0 && below(2)) {  // a common prefix with an earlier one, whole blocks of fed tokens
      size_t other = size_t(below(uint32_t(s)));
      int32_t most = std::min({base / 16, static_cast<int32_t>(step.tables[other].size()),
                               step.visible[size_t(step.first[other])] / 16});
      int32_t shared = below(uint32_t(most) + 1);
      table.assign(step.tables[other].begin(), step.tables[other].begin() + shared);
    }
    while (static_cast<int32_t>(table.size()) < n_blocks) table.push_back(next++);
    const bool later = !parents.empty() && below(3) == 0;
    step.add(std::move(table), base, n_plain, parents,
             later ? below(static_cast<uint32_t>(parents.size())) : -1);
  }
  return step;
}

TEST(AttentionPlan, EveryRowMeetsEveryKeyOnce) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Step step = random_step(seed);
    AttentionLimits limits{seed % 3 ? 8 : 6,      seed % 3 ? 2 : 6, 16, seed % 4 ? 0 : 150, 4000,
                           seed % 2 ? 1 << 20 : 0};
    if (seed % 5 == 0) limits.max_parts = 7;
    AttentionPlan plan(limits);
    for (int32_t first = 0, T = static_cast<int32_t>(step.positions.size()); first < T;) {
      int32_t end = plan.build(step.rows(), first);
      ASSERT_GT(end, first);
      expect_complete(step, limits, plan, first, end);
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
      first = end;
    }
  }
}

TEST(AttentionPlan, APrefixInCommonBlocksIsReadOnce) {
  Step step;
  for (int32_t s = 0; s < 4; ++s) {  // 2,048 common tokens, then 16 s + 1 of its own
    std::vector<int32_t> table = blocks(0, 128), own = blocks(1000 + 10 * s, s + 1);
    table.insert(table.end(), own.begin(), own.end());
    step.add(table, 2048 + 16 * s, 1);
  }
  AttentionPlan plan({8, 2, 16, 0, 1000, 0});
  ASSERT_EQ(plan.build(step.rows(), 0), 4);
  ASSERT_EQ(plan.items().size(), 5u);  // the prefix, and each one's last group
  EXPECT_EQ(plan.items()[0].n_rows, 4);
  ASSERT_EQ(plan.items()[0].n_runs, 1 + 0);
  EXPECT_EQ(plan.runs()[0].begin, 0);
  EXPECT_EQ(plan.runs()[0].end, 2048);
  EXPECT_EQ(plan.runs()[0].n, 4);
}

// 2,048 common tokens before 40 sequences, each with a token of its own and a chain: 4 heads to a
// KV head, so 16 rows a load. They stand side by side, and every row of the prefix is in one of
// them.
TEST(AttentionPlan, ABlockIsLoadedOnceForEverySixteenRowsWhoeverTheyBelongTo) {
  for (int32_t n_rows : {1, 4}) {
    Step step;
    for (int32_t s = 0; s < 40; ++s) {
      std::vector<int32_t> table = blocks(0, 128);
      table.push_back(1000 + s);
      step.add(table, 2048, n_rows);
    }
    AttentionPlan plan({8, 2, 16, 0, 1000, 0});
    ASSERT_EQ(plan.build(step.rows(), 0), 40 * n_rows);
    int32_t n_loads = 0, n_met = 0;
    for (const AttentionItem& item : plan.items()) {
      const AttentionRun& run = plan.runs()[size_t(item.first_run)];
      if (run.begin >= 2048) break;
      EXPECT_EQ(item.n_runs, 1);
      EXPECT_EQ(run.end, 2048);
      ++n_loads;
      n_met += run.n;
    }
    EXPECT_EQ(n_loads, (40 * n_rows + 15) / 16);
    EXPECT_EQ(n_met, 40 * n_rows);
    EXPECT_EQ(plan.items().size(), size_t(n_loads) + 40);  // and each one's own end
  }
}

// The same with the ends in the group of the prefix: an item walks at most 8 of them.
TEST(AttentionPlan, AnItemWalksNoMoreThanEightRests) {
  Step step;
  for (int32_t s = 0; s < 40; ++s) {
    std::vector<int32_t> table = blocks(0, 64);
    table.push_back(1000 + s);
    step.add(table, 1024, 1);
  }
  AttentionPlan plan({8, 2, 16, 0, 1000, 0});
  ASSERT_EQ(plan.build(step.rows(), 0), 40);
  ASSERT_EQ(plan.items().size(), 5u);
  for (const AttentionItem& item : plan.items()) EXPECT_EQ(item.n_runs, 1 + kMaxRests);
}

// Branches of 3 nodes behind 1,000 tokens: 960 common ones are read once, then each branch.
TEST(AttentionPlan, BranchesOfATreeShareWhatIsInFront) {
  Step step;
  step.add(blocks(0, 70), 999, 1, {-1, -1, 0, 1, 2, 3});
  AttentionPlan plan({8, 8, 16, 0, 1000, 0});
  plan.build(step.rows(), 0);
  ASSERT_EQ(plan.items().size(), 1u);
  ASSERT_EQ(plan.runs().size(), 3u);
  const AttentionRun &common = plan.runs()[0], &left = plan.runs()[1], &right = plan.runs()[2];
  EXPECT_EQ(common.begin, 0);
  EXPECT_EQ(common.end, 960);
  EXPECT_EQ(common.n, 7);
  EXPECT_EQ(left.begin, 960);
  EXPECT_EQ(left.end, 1003);
  EXPECT_EQ(left.n, 4);  // the plain row goes with the first branch
  EXPECT_EQ(right.first, 4);
  EXPECT_EQ(right.n, 3);
  EXPECT_EQ(right.path_row, 6);
}

// One row of 600 tokens on a device that wants 6 blocks: one group would be 2, its splits are 6.
TEST(AttentionPlan, FewItemsAreCutIntoSplits) {
  Step step;
  step.add(blocks(0, 38), 600, 1);
  AttentionLimits limits{8, 2, 16, 0, 1000, 6};
  AttentionPlan wide(limits);
  wide.build(step.rows(), 0);
  EXPECT_EQ(wide.unit_tokens(), kSplitTokens);
  EXPECT_EQ(wide.items().size(), 3u);
  limits.min_blocks = 2;
  AttentionPlan narrow(limits);
  narrow.build(step.rows(), 0);
  EXPECT_EQ(narrow.unit_tokens(), kGroupTokens);
  EXPECT_EQ(narrow.items().size(), 1u);
}

TEST(AttentionPlan, NoRowsNoItems) {
  AttentionPlan plan({8, 2, 16, 0, 10, 4});
  EXPECT_EQ(plan.build({}, 0), 0);
  EXPECT_TRUE(plan.items().empty());
}

TEST(AttentionPlan, TheSecondStepAllocatesNothingAndIsTheSame) {
  Step step = random_step(11);
  AttentionRows rows = step.rows();
  AttentionPlan plan({8, 2, 16, 0, 4000, 1 << 20});
  plan.build(rows, 0);
  std::vector<AttentionRun> runs(plan.runs().begin(), plan.runs().end());
  int64_t before = g_allocations;
  plan.build(rows, 0);
  EXPECT_EQ(g_allocations, before);
  ASSERT_EQ(runs.size(), plan.runs().size());
  for (size_t i = 0; i < runs.size(); ++i)
    EXPECT_TRUE(runs[i].table == plan.runs()[i].table && runs[i].begin == plan.runs()[i].begin &&
                runs[i].end == plan.runs()[i].end && runs[i].first == plan.runs()[i].first);
}

TEST(AttentionPlanDeathTest, OneRowMustFit) {
  Step step;
  step.add(blocks(0, 300), 4096, 1);
  AttentionPlan plan({8, 2, 16, 0, 2, 0});
  EXPECT_DEATH(plan.build(step.rows(), 0), "no memory for one row's parts");
  EXPECT_DEATH(AttentionPlan({130, 2, 16, 0, 2, 0}), "more than 64 query heads");
}

}  // namespace
}  // namespace pf::kernels
