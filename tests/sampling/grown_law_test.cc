// Truth: hand-worked trees, and the target's law: histograms of 500,000 rounds of the pure rule
// over grown trees against p worked out in float64; chi-square with p > 0.001.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "sampling/accept.h"
#include "sampling/grown_tree.h"
#include "support/chi_square.h"

namespace pf {
namespace {

constexpr int kDraws = 500000;
constexpr int kV = 5;

using Top = std::vector<TokenProbability>;

// Logits of the draft and of the target behind a text that ends with these tokens.
Top draft_top(const std::vector<int32_t>& path) {
  int context = 0;
  for (int32_t t : path) context = 3 * context + t + 1;
  Top top;
  for (int t = 0; t < kV; ++t)
    top.push_back({t, static_cast<float>((5 * t + 2 * context + t * context) % 7) * 0.6f});
  return top;
}
std::vector<float> target_logits(const std::vector<int32_t>& path) {
  int context = 0;
  for (int32_t t : path) context = 3 * context + t + 1;
  std::vector<float> logits;
  for (int t = 0; t < kV; ++t)
    logits.push_back(static_cast<float>((4 * t + 3 * context + 2 * t * context) % 5) * 0.5f);
  return logits;
}
std::vector<double> softmax(const std::vector<float>& logits) {
  std::vector<double> p;
  double sum = 0;
  for (float x : logits) sum += p.emplace_back(std::exp(static_cast<double>(x)));
  for (double& v : p) v /= sum;
  return p;
}

std::vector<int32_t> path_of(const DraftTree& tree, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = tree.parents[static_cast<size_t>(node)])
    path.insert(path.begin(), tree.tokens[static_cast<size_t>(node)]);
  return path;
}

struct Grower {
  SamplingParams params;
  StopParams stop;
  NoiseKey key;
  bool coupled = false;

  void grow(int32_t n_nodes, int32_t n_levels, DraftTree* tree, GrownTree* grown) const {
    grown->begin(n_nodes, n_levels);
    GrowthPoint root{DraftTree::kRoot, 10, 0, &params, &stop, nullptr, key, coupled};
    std::vector<Top> top;
    while (!grown->complete()) {
      top.clear();
      for (int32_t node : grown->open()) top.push_back(draft_top(path_of(grown->fed(), node)));
      grown->add_level(root, top);
      EXPECT_LE(grown->fed().size(), n_nodes);
    }
    grown->take(tree);
  }
};

void expect_tree(const DraftTree& tree, int32_t n_nodes, int32_t n_levels) {
  ASSERT_LE(tree.size(), n_nodes);
  for (int32_t n = 0; n < tree.size(); ++n) {
    auto i = static_cast<size_t>(n);
    ASSERT_LT(tree.parents[i], n) << "parents come first";
    ASSERT_LE(tree.depths[i], n_levels);
    if (n > 0) {
      ASSERT_GE(tree.depths[i], tree.depths[i - 1]) << "level by level";
    }
    for (int32_t m = 0; m < n; ++m) {
      ASSERT_FALSE(tree.parents[static_cast<size_t>(m)] == tree.parents[i] &&
                   tree.tokens[static_cast<size_t>(m)] == tree.tokens[i])
          << "a sibling twice";
    }
  }
}

// q behind the root: .6 .3 .1; behind token 0: .9 .1, behind token 1: .51 .49.
// Worths: 0: .6, 1: .3, 2: .1, 00: .54, 01: .06, 10: .153, 11: .147. The best: 0, 00, 1, 10.
TEST(GrownTree, KeepsTheBestOfAllThatItSaw) {
  auto log = [](double p) { return static_cast<float>(std::log(p)); };
  SamplingParams params;
  StopParams stop;
  GrownTree grown;
  grown.begin(4, 2);
  GrowthPoint root{DraftTree::kRoot, 3, 0, &params, &stop, nullptr, {}, false};
  grown.add_level(root, std::vector<Top>{{{2, log(.1)}, {0, log(.6)}, {1, log(.3)}}});
  ASSERT_EQ(std::vector<int32_t>(grown.open().begin(), grown.open().end()),
            (std::vector<int32_t>{0, 1, 2}));  // three nodes: there is room for four
  grown.add_level(root,
                  std::vector<Top>{
                      {{0, log(.9)}, {1, log(.1)}}, {{0, log(.51)}, {1, log(.49)}}, {{0, log(1)}}});
  ASSERT_TRUE(grown.complete());
  DraftTree tree;
  grown.take(&tree);
  EXPECT_EQ(tree.tokens, (std::vector<int32_t>{0, 1, 0, 0}));
  EXPECT_EQ(tree.parents, (std::vector<int32_t>{-1, -1, 0, 1}));
  EXPECT_EQ(tree.n_grown_levels, 2);
  EXPECT_TRUE(tree.q_entries.empty());
}

// Three nodes, three levels. q behind the root: .4 .35 .25; what comes behind the .4 is worth less
// than all of them, so the third level is not looked at.
TEST(GrownTree, StopsWhereNothingBehindCanBeAmongTheBest) {
  auto log = [](double p) { return static_cast<float>(std::log(p)); };
  SamplingParams params;
  StopParams stop;
  GrownTree grown;
  grown.begin(3, 3);  // one node is fed from each level
  GrowthPoint root{DraftTree::kRoot, 3, 0, &params, &stop, nullptr, {}, false};
  grown.add_level(root, std::vector<Top>{{{0, log(.4)}, {1, log(.35)}, {2, log(.25)}}});
  ASSERT_EQ(grown.open().size(), 1u);
  grown.add_level(root, std::vector<Top>{{{0, log(.5)}, {1, log(.5)}}});  // .2 each
  EXPECT_TRUE(grown.complete());
  DraftTree tree;
  grown.take(&tree);
  EXPECT_EQ(tree.tokens, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(tree.depth(), 1);
  EXPECT_EQ(tree.n_grown_levels, 2) << "passes of the draft";
}

TEST(GrownTree, IsATreeOfEverySize) {
  for (bool coupled : {false, true})
    for (float temperature : {0.0f, 1.0f})
      for (int32_t nodes : {1, 2, 3, 7, 16, 40, 64})
        for (int32_t levels : {1, 2, 3, 5, 10, 16}) {
          Grower g;
          g.coupled = coupled;
          g.params.temperature = temperature;
          g.key = {static_cast<uint64_t>(nodes * levels), 1};
          DraftTree tree;
          GrownTree grown;
          const int32_t deep = std::min(nodes, levels);
          g.grow(nodes, deep, &tree, &grown);
          expect_tree(tree, nodes, deep);
          bool full = kV * (deep > 1 ? kV : 1) >= nodes;  // so many there are for sure
          if (full && temperature == 0) {
            EXPECT_EQ(tree.size(), nodes);
          }
          EXPECT_GT(tree.size(), 0);
        }
}

TEST(GrownTree, AnIllDraftProposesNothing) {
  Grower g;
  for (float temperature : {0.0f, 1.0f}) {
    g.params.temperature = temperature;
    GrownTree grown;
    grown.begin(8, 3);
    GrowthPoint root{DraftTree::kRoot, 3, 0, &g.params, &g.stop, nullptr, {}, false};
    grown.add_level(root, std::vector<Top>(1));
    EXPECT_TRUE(grown.complete());
    DraftTree tree;
    grown.take(&tree);
    EXPECT_EQ(tree.size(), 0);
  }
}

// Rounds over trees that `grow` makes, then plain draws, until two tokens are there; their joint
// histogram beside p(a) p(b | a).
double law_p_value(const std::function<void(const Grower&, DraftTree*, GrownTree*)>& grow,
                   Acceptance rule) {
  std::vector<double> seen(kV * kV, 0), want(kV * kV);
  std::vector<double> first = softmax(target_logits({}));
  for (int a = 0; a < kV; ++a)
    for (int b = 0; b < kV; ++b)
      want[static_cast<size_t>(a * kV + b)] =
          first[static_cast<size_t>(a)] * softmax(target_logits({a}))[static_cast<size_t>(b)];
  Grower g;
  g.params.temperature = 1;
  g.coupled = rule == Acceptance::kCoupled;
  GrownTree grown;
  DraftTree tree, none;
  std::vector<float> logits;
  AcceptResult r;
  for (int i = 0; i < kDraws; ++i) {
    g.key = {static_cast<uint64_t>(i) * 7919 + 1, 3};
    grow(g, &tree, &grown);
    std::vector<int32_t> tokens;
    while (tokens.size() < 2) {
      const DraftTree& draft = tokens.empty() ? tree : none;
      logits.clear();
      for (int32_t n = -1; n < draft.size(); ++n) {
        std::vector<int32_t> path = tokens;
        for (int32_t t : path_of(draft, n)) path.push_back(t);
        std::vector<float> row = target_logits(path);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      AcceptInput in{};
      in.tree = &draft;
      in.logits = {logits.data(), {1 + draft.size(), kV}};
      in.params = &g.params;
      in.stop = &g.stop;
      in.policy.rule = rule;
      in.key = g.key;
      in.position = 10 + static_cast<int64_t>(tokens.size());
      in.max_tokens = static_cast<int32_t>(2 - tokens.size());
      accept(in, &r);
      tokens.insert(tokens.end(), r.tokens.begin(), r.tokens.end());
    }
    seen[static_cast<size_t>(tokens[0] * kV + tokens[1])] += 1;
  }
  return chi_square_p_value(seen, want);
}

auto grown(int32_t n_nodes, int32_t n_levels) {
  return [=](const Grower& g, DraftTree* tree, GrownTree* grown) {
    g.grow(n_nodes, n_levels, tree, grown);
  };
}

TEST(GrownLaw, DrawnSmall) { EXPECT_GT(law_p_value(grown(4, 2), Acceptance::kRejection), 0.001); }
TEST(GrownLaw, DrawnWide) { EXPECT_GT(law_p_value(grown(9, 2), Acceptance::kRejection), 0.001); }
TEST(GrownLaw, DrawnDeep) { EXPECT_GT(law_p_value(grown(5, 3), Acceptance::kRejection), 0.001); }
TEST(GrownLaw, Coupled) { EXPECT_GT(law_p_value(grown(6, 2), Acceptance::kCoupled), 0.001); }

// Of a greedy draft for a request that draws: one-hot, so it may be pruned.
TEST(GrownLaw, OneHotUnderRejection) {
  EXPECT_GT(law_p_value(
                [](const Grower& g, DraftTree* tree, GrownTree* grown) {
                  Grower greedy = g;
                  greedy.params.temperature = 0;
                  greedy.grow(6, 2, tree, grown);
                },
                Acceptance::kRejection),
            0.001);
}

// The classic fault, as a tree that grows would make it: a drawn tree is pruned to its best nodes
// by what was drawn for them. The test itself must see the bias.
TEST(GrownLaw, SeesTheBiasWhenADrawnTreeIsPruned) {
  auto pruned = [](const Grower& g, DraftTree* tree, GrownTree* grown) {
    DraftTree full;
    g.grow(6, 2, &full, grown);
    std::vector<double> worth;
    for (int32_t n = 0; n < full.size(); ++n) {
      auto i = static_cast<size_t>(n);
      double above = full.parents[i] < 0 ? 1 : worth[static_cast<size_t>(full.parents[i])];
      worth.push_back(above * static_cast<double>(full.scores[i]));
    }
    std::vector<double> best = worth;
    std::sort(best.rbegin(), best.rend());
    std::vector<int32_t> place(worth.size(), -2);
    tree->clear();
    tree->q_entries = full.q_entries;
    for (int32_t n = 0; n < full.size(); ++n) {
      auto i = static_cast<size_t>(n);
      int32_t parent = full.parents[i] < 0 ? -1 : place[static_cast<size_t>(full.parents[i])];
      if (worth[i] < best[2] || parent == -2) continue;
      place[i] = tree->size();
      tree->add(full.tokens[i], parent, full.q_begin[i], full.scores[i]);
      tree->q_end.back() = full.q_end[i];
    }
  };
  EXPECT_LT(law_p_value(pruned, Acceptance::kRejection), 1e-9);
}

}  // namespace
}  // namespace pf
