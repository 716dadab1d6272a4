// Truth: all logits sorted, of equal ones the lower token first.
#include "backend/cpu/top_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pf {
namespace {

using Pairs = std::vector<std::pair<float, int32_t>>;

Pairs sorted(const std::vector<TokenProbability>& top) {
  Pairs p;
  for (const TokenProbability& t : top) p.push_back({-t.probability, t.token});
  std::sort(p.begin(), p.end());
  return p;
}

TEST(TopLogits, AreTheFirstOfTheSortedRow) {
  std::mt19937 rng(3);
  for (size_t size : {0, 1, 15, 16, 17, 100, 5000})
    for (size_t n : {1, 2, 128})
      for (int kind = 0; kind < 4; ++kind) {  // random, many equal, rising, falling
        std::vector<float> logits(size);
        std::vector<int32_t> tokens(size);
        std::vector<TokenProbability> all(size), top;
        for (size_t i = 0; i < size; ++i) {
          float r = static_cast<float>(rng() % 100000), at = static_cast<float>(i);
          logits[i] = kind == 0   ? r
                      : kind == 1 ? static_cast<float>(rng() % 3)
                      : kind == 2 ? at
                                  : -at;
          tokens[i] = static_cast<int32_t>(kind % 2 ? i * 3 : 2 * size - i);  // in any order
          all[i] = {tokens[i], logits[i]};
        }
        find_top_logits(logits, tokens, n, &top);
        Pairs want = sorted(all);
        want.resize(std::min(n, size));
        EXPECT_EQ(sorted(top), want) << size << " kind " << kind << " n " << n;
      }
}

TEST(TopLogits, MinusInfinityIsALogitLikeOthers) {
  std::vector<float> logits(40, -INFINITY);
  logits[33] = -5;
  std::vector<TokenProbability> top;
  find_top_logits(logits, {}, 3, &top);
  EXPECT_EQ(sorted(top), (Pairs{{5, 33}, {INFINITY, 0}, {INFINITY, 1}}));
}

}  // namespace
}  // namespace pf
