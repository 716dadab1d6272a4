// Truth: laws worked out in float64. What a cascade proposes is a sample of the better draft, token
// by token, whatever the cheap one is (histograms of 500,000 draws of the pure rule, chi-square
// with p > 0.001); and what the target keeps of it and adds follows the target's law.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "sampling/accept.h"
#include "sampling/grow.h"
#include "support/chi_square.h"

namespace pf {
namespace {

constexpr int kDraws = 500000;
constexpr int kV = 6;

using Law = std::vector<double>;
// Of the next token behind the root (context 0) or behind token t (context 1 + t).
Law law(int salt, int context) {
  Law p(kV);
  double sum = 0;
  for (int t = 0; t < kV; ++t)
    sum += p[t] = (1 + salt + t * (t + salt) + context * (salt + t * t)) % 7;
  for (double& v : p) v /= sum;
  return p;
}

// Everything of one round: the request and what the drafts say.
struct Scene {
  SamplingParams params;
  StopParams stop;
  GrowthPoint root(NoiseKey key, bool coupled = false) const {
    GrowthPoint at;
    at.position = 10;
    at.params = &params;
    at.stop = &stop;
    at.key = key;
    at.coupled = coupled;
    return at;
  }
  static std::vector<TokenProbability> logits(const Law& q) {
    std::vector<TokenProbability> row;
    for (int t = 0; t < kV; ++t)
      if (q[t] > 0) row.push_back({t, static_cast<float>(std::log(q[t]))});
    return row;
  }
  // A chain of up to two tokens: `cheap` as draft number `salt` keeps and goes on with it.
  DraftTree filter(const DraftTree& cheap, int salt, NoiseKey key, uint32_t level,
                   bool coupled = false) const {
    std::vector<std::vector<TokenProbability>> rows = {logits(law(salt, 0))};
    for (int32_t x : cheap.tokens) rows.push_back(logits(law(salt, 1 + x)));
    FilterInput in;
    in.root = root(key, coupled);
    in.cheap = &cheap;
    in.rows = rows;
    in.max_nodes = 2;
    in.level = level;
    DraftTree tree;
    int32_t n_added = filter_chain(in, &tree);
    EXPECT_EQ(n_added, tree.size());
    return tree;
  }
  // Drawn from draft number `salt`.
  DraftTree sampled(int salt, NoiseKey key) const {
    DraftTree tree;
    GrowthPoint at = root(key);
    add_children(at, logits(law(salt, 0)), 1, &tree);
    at.node = 0, at.position = 11, at.n_generated = 1;
    add_children(at, logits(law(salt, 1 + tree.tokens[0])), 1, &tree);
    return tree;
  }
  Scene() { params.temperature = 1; }
};

NoiseKey key_of(int i) { return {static_cast<uint64_t>(i) * 7919 + 1, 3}; }

DraftTree copied(std::vector<int32_t> tokens) {
  DraftTree tree;
  for (size_t i = 0; i < tokens.size(); ++i)
    tree.add_one_hot(tokens[i], static_cast<int32_t>(i) - 1);
  return tree;
}

using Propose = std::function<DraftTree(const Scene&, NoiseKey)>;

// First tokens follow q; second ones, where there is one, q behind the first.
void expect_samples_of(int salt, const Propose& propose) {
  Scene scene;
  Law first(kV, 0), second(kV * kV, 0), want(kV * kV, 0), n_second(kV, 0);
  double n_both = 0;
  for (int i = 0; i < kDraws; ++i) {
    DraftTree tree = propose(scene, key_of(i));
    ++first[tree.tokens[0]];
    if (tree.size() < 2) continue;
    ++second[tree.tokens[0] * kV + tree.tokens[1]];
    ++n_second[tree.tokens[0]];
    ++n_both;
  }
  EXPECT_GT(chi_square_p_value(first, law(salt, 0)), 0.001);
  ASSERT_GT(n_both, kDraws / 20);
  for (int a = 0; a < kV; ++a)
    for (int b = 0; b < kV; ++b) want[a * kV + b] = n_second[a] / n_both * law(salt, 1 + a)[b];
  EXPECT_GT(chi_square_p_value(second, want), 0.001);
}

// How likely it is that two tokens over such a draft follow the law of the target, number 1.
double p_of_targets_law(const Propose& propose) {
  Scene scene;
  Law seen(kV * kV, 0), want(kV * kV);
  for (int a = 0; a < kV; ++a)
    for (int b = 0; b < kV; ++b) want[a * kV + b] = law(1, 0)[a] * law(1, 1 + a)[b];
  double n_kept = 0;
  auto judge = [&](const DraftTree& tree, int context, int64_t position, NoiseKey key) {
    std::vector<float> logits;
    for (int32_t r = -1; r < tree.size(); ++r)
      for (double p : law(1, r < 0 ? context : 1 + tree.tokens[static_cast<size_t>(r)]))
        logits.push_back(static_cast<float>(std::log(p)));
    AcceptInput in{};
    in.tree = &tree;
    for (float& v : logits) v = std::max(v, -1e9f);  // log 0
    in.logits = {logits.data(), {1 + tree.size(), kV}};
    in.params = &scene.params;
    in.stop = &scene.stop;
    in.key = key;
    in.position = position;
    in.max_tokens = static_cast<int32_t>(12 - position);
    AcceptResult r;
    accept(in, &r);
    n_kept += r.n_accepted;
    return r.tokens;
  };
  for (int i = 0; i < kDraws; ++i) {
    std::vector<int32_t> tokens = judge(propose(scene, key_of(i)), 0, 10, key_of(i));
    if (tokens.size() == 1) tokens.push_back(judge({}, 1 + tokens[0], 11, key_of(i))[0]);
    ++seen[tokens[0] * kV + tokens[1]];
  }
  EXPECT_GT(n_kept, kDraws / 4);
  return chi_square_p_value(seen, want);
}
void expect_targets_law(const Propose& propose) { EXPECT_GT(p_of_targets_law(propose), 0.001); }

DraftTree over_a_copy(const Scene& s, NoiseKey key) { return s.filter(copied({4, 1}), 2, key, 1); }
DraftTree over_a_sample(const Scene& s, NoiseKey key) {
  return s.filter(s.sampled(3, key), 2, key, 1);
}
// The copy is filtered by draft 3, and that by draft 2.
DraftTree of_three_levels(const Scene& s, NoiseKey key) {
  return s.filter(s.filter(copied({4, 1}), 3, key, 1), 2, key, 2);
}

TEST(CascadeLaw, OverACopyItIsASampleOfTheBetterDraft) { expect_samples_of(2, over_a_copy); }
TEST(CascadeLaw, OverASampledChainItIsASampleOfTheBetterDraft) {
  expect_samples_of(2, over_a_sample);
}
TEST(CascadeLaw, OfThreeLevelsItIsASampleOfTheBestDraft) { expect_samples_of(2, of_three_levels); }
TEST(CascadeLaw, TheTargetKeepsItsLawOverACopy) { expect_targets_law(over_a_copy); }
TEST(CascadeLaw, TheTargetKeepsItsLawOverASampledChain) { expect_targets_law(over_a_sample); }
TEST(CascadeLaw, TheTargetKeepsItsLawOverThreeLevels) { expect_targets_law(of_three_levels); }

// The same tokens under another q: that of draft `salt`.
DraftTree claiming(const DraftTree& tree, int salt) {
  DraftTree out;
  for (int32_t n = 0; n < tree.size(); ++n) {
    auto begin = static_cast<int32_t>(out.q_entries.size());
    Law q = law(salt, n == 0 ? 0 : 1 + tree.tokens[0]);
    for (int t = 0; t < kV; ++t)
      if (q[t] > 0) out.q_entries.push_back({t, static_cast<float>(q[t])});
    int32_t token = tree.tokens[static_cast<size_t>(n)];
    out.add(token, n - 1, begin, static_cast<float>(q[token]));
  }
  return out;
}

// The faults that the tests above must see: what the better draft kept claims the cheap one's law,
// and a copy, which is deterministic, claims to be a sample.
TEST(CascadeLaw, TheTargetsLawIsLostUnderAWrongQ) {
  EXPECT_LT(p_of_targets_law(
                [](const Scene& s, NoiseKey key) { return claiming(over_a_sample(s, key), 3); }),
            1e-9);
  EXPECT_LT(p_of_targets_law([](const Scene&, NoiseKey) {
              return claiming(copied({4, 1}), 2);
            }),
            1e-9);
  EXPECT_GT(p_of_targets_law(
                [](const Scene& s, NoiseKey key) { return claiming(over_a_sample(s, key), 2); }),
            0.001)
      << "and kept under the right one";
}

TEST(Cascade, CarriesTheBetterDraftsDistribution) {
  Scene scene;
  for (int i = 0; i < 100; ++i) {
    DraftTree tree = over_a_copy(scene, key_of(i));
    for (int32_t n = 0; n < tree.size(); ++n) {
      Law want = law(2, n == 0 ? 0 : 1 + tree.tokens[0]);
      Law seen(kV, 0);
      for (const TokenProbability& e : tree.q(n)) seen[e.token] = e.probability;
      for (int t = 0; t < kV; ++t) EXPECT_NEAR(seen[t], want[t], 1e-6);
      EXPECT_NEAR(tree.scores[n], want[tree.tokens[n]], 1e-6);
    }
  }
}

TEST(Cascade, GreedyAndCoupledKeepWhileEqual) {
  Scene scene;
  NoiseKey key = key_of(5);
  DraftTree alone = scene.filter({}, 2, key, 1, true);  // what the better draft says by itself
  ASSERT_EQ(alone.size(), 1);
  DraftTree kept = scene.filter(copied({alone.tokens[0]}), 2, key, 1, true);
  ASSERT_EQ(kept.size(), 2);
  EXPECT_EQ(kept.tokens[0], alone.tokens[0]);
  EXPECT_TRUE(kept.q(0).empty() && kept.q(1).empty()) << "deterministic: one-hot";
  DraftTree parted = scene.filter(copied({(alone.tokens[0] + 1) % kV, 0}), 2, key, 1, true);
  ASSERT_EQ(parted.size(), 1);
  EXPECT_EQ(parted.tokens[0], alone.tokens[0]);
  scene.params.temperature = 0;
  Law q = law(2, 0);
  auto best = static_cast<int32_t>(std::max_element(q.begin(), q.end()) - q.begin());
  DraftTree greedy = scene.filter(copied({best, 3, 3}), 2, key, 1);
  EXPECT_EQ(greedy.size(), 2) << "no more than asked for";
  EXPECT_EQ(greedy.tokens[0], best);
}

TEST(Cascade, ARowThatIsIllEndsTheDraft) {
  Scene scene;
  DraftTree cheap = copied({1, 2}), tree;
  std::vector<std::vector<TokenProbability>> rows(3);
  FilterInput in;
  in.root = scene.root(key_of(1));
  in.cheap = &cheap;
  in.rows = rows;
  in.max_nodes = 3;
  EXPECT_EQ(filter_chain(in, &tree), 0);
}

}  // namespace
}  // namespace pf
