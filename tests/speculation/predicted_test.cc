// Truth: where an output stands in a prediction, by the definition in predicted_drafter.h as loops
// over all places; and texts worked by hand.
#include <gtest/gtest.h>

#include <random>

#include "speculation/predicted_drafter.h"

namespace pf {
namespace {

using Text = std::vector<int32_t>;

// Tokens before p that equal the ending of the output.
int64_t agreed(const Text& predicted, int64_t p, const Text& output) {
  int64_t n = 0, m = static_cast<int64_t>(output.size());
  while (n < std::min({p, m, Alignment::kLongest}) &&
         predicted[static_cast<size_t>(p - 1 - n)] == output[static_cast<size_t>(m - 1 - n)])
    ++n;
  return n;
}

// The definition, followed token by token. Prediction short enough that kCandidates is no limit.
int64_t define(const Text& predicted, const Text& output) {
  int64_t next = 0, expected = 0, parted = 0, n = static_cast<int64_t>(predicted.size());
  for (size_t i = 0; i < output.size(); ++i) {
    Text so_far(output.begin(), output.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ++expected;
    bool agrees = next >= 0 && next < n && predicted[static_cast<size_t>(next)] == output[i];
    int64_t best = agrees ? next + 1 : -1, most = 2;
    for (int64_t p = n; p >= 0 && !agrees; --p) {
      int64_t a = agreed(predicted, p, so_far);
      bool nearer = best < 0 || std::abs(p - expected) < std::abs(best - expected);
      if (a > most || (a == most && nearer)) best = p, most = a;
    }
    for (int64_t p = parted + 1; p <= std::min(n, parted + Alignment::kNear) && best < 0; ++p)
      if (agreed(predicted, p, so_far) > 0) best = p;
    next = best;
    if (best >= 0) expected = parted = best;
  }
  return next;
}

int64_t place(const Text& predicted, const Text& output) {
  Alignment a(predicted);
  a.update(predicted, output);
  return a.next();
}

TEST(Alignment, IsWhatTheDefinitionSaysAfterEveryToken) {
  std::mt19937 rng(3);
  for (uint32_t vocabulary : {2u, 4u, 9u, 60u})
    for (int round = 0; round < 60; ++round) {
      Text predicted, output;
      for (int i = 0; i < 14; ++i) predicted.push_back(static_cast<int32_t>(rng() % vocabulary));
      Alignment a(predicted);
      size_t copied = 0;
      for (int i = 0; i < 30; ++i) {  // a copy with tokens left out, put in and replaced
        uint32_t what = rng() % 8;
        if (what < 5 && copied < predicted.size())
          output.push_back(predicted[copied++]);
        else
          output.push_back(static_cast<int32_t>(rng() % vocabulary));
        copied += what == 6 || what == 7 ? 1 + rng() % 2 : 0;
        a.update(predicted, output);
        ASSERT_EQ(a.next(), define(predicted, output)) << "vocabulary " << vocabulary;
      }
    }
}

TEST(Alignment, FollowsEdits) {
  Text text = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  EXPECT_EQ(place(text, {}), 0);
  EXPECT_EQ(place(text, {10, 11, 12}), 3);
  EXPECT_EQ(place(text, {10, 11, 99}), Alignment::kLost);
  EXPECT_EQ(place(text, {10, 11, 99, 13}), 4) << "one token was replaced";
  EXPECT_EQ(place(text, {10, 11, 14}), 5) << "two were left out";
  EXPECT_EQ(place(text, {10, 11, 98, 99, 12}), 3) << "two were put in";
  EXPECT_EQ(place(text, {15, 16}), 7) << "it begins in the middle";
  EXPECT_EQ(place(text, {18, 19}), 10) << "nothing is left";
  EXPECT_EQ(place({}, {1, 2}), Alignment::kLost);
}

// Of two places that agree in as many tokens the nearer one is taken, not the first.
TEST(Alignment, ARepeatedLineIsTakenWhereTheOutputIs) {
  Text text = {1, 2, 30, 31, 32, 1, 2, 40, 41, 42, 1, 2, 50};
  EXPECT_EQ(place(text, {1, 2, 30, 31, 32, 99, 1, 2}), 7);
}

TEST(Alignment, ALongRepetitionCostsNoMoreThanItsNeighbourhood) {
  Text text(100'000, 7), output;
  Alignment a(text);
  for (int i = 0; i < 2000; ++i) {  // each 8 finds 50,000 places of (7, 7) and looks at 32
    output.insert(output.end(), {8, 7, 7});
    a.update(text, output);
  }
  EXPECT_NE(a.next(), Alignment::kLost);
}

}  // namespace
}  // namespace pf
