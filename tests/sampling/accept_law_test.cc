// Truth: the target's law. Histograms of 500,000 draws of the pure rule against p worked out in
// float64; chi-square with p > 0.001.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "sampling/accept.h"
#include "sampling/siblings.h"
#include "support/chi_square.h"

namespace pf {
namespace {

constexpr int kDraws = 500000;
constexpr int kV = 6;

// Fixed two-step laws over a vocabulary of 6: p of the first token, p of the second given the
// first.
std::vector<double> target_row(int context) {
  std::vector<double> p(kV);
  double sum = 0;
  for (int t = 0; t < kV; ++t) sum += p[t] = 1 + (7 * t + 3 * context + t * context) % 5;
  for (double& v : p) v /= sum;
  return p;
}
std::vector<double> draft_row(int context) {
  std::vector<double> q(kV);
  double sum = 0;
  for (int t = 0; t < kV; ++t) sum += q[t] = (5 * t + context) % 4;
  for (double& v : q) v /= sum;
  return q;
}

std::vector<TokenProbability> entries(const std::vector<double>& q) {
  std::vector<TokenProbability> e;
  for (int t = 0; t < kV; ++t)
    if (q[t] > 0) e.push_back({t, static_cast<float>(q[t])});
  return e;
}

// Draws two tokens per round with `propose` and compares the joint histogram with p(a) p(b | a).
void expect_law(const std::function<void(DraftTree*, NoiseKey)>& propose, Acceptance rule) {
  SamplingParams params;
  params.temperature = 1;
  StopParams stop;
  std::vector<double> seen(kV * kV, 0), want(kV * kV);
  std::vector<double> first = target_row(0);
  for (int a = 0; a < kV; ++a)
    for (int b = 0; b < kV; ++b) want[a * kV + b] = first[a] * target_row(1 + a)[b];
  for (int i = 0; i < kDraws; ++i) {
    NoiseKey key{static_cast<uint64_t>(i) * 7919 + 1, 3};
    DraftTree tree;
    propose(&tree, key);
    auto rows_of = [&](const DraftTree& t, int base) {
      std::vector<float> logits;
      auto add = [&](int context) {
        for (double p : target_row(context)) logits.push_back(static_cast<float>(std::log(p)));
      };
      add(base);
      for (int32_t x : t.tokens) add(base == 0 ? 1 + x : 0);  // contexts of depth 1 only matter
      return logits;
    };
    std::vector<float> logits = rows_of(tree, 0);
    AcceptInput in{};
    in.tree = &tree;
    in.logits = {logits.data(), {1 + tree.size(), kV}};
    in.params = &params;
    in.stop = &stop;
    in.policy.rule = rule;
    in.key = key;
    in.position = 10;
    in.max_tokens = 2;
    AcceptResult r;
    accept(in, &r);
    std::vector<int32_t> tokens = r.tokens;
    if (tokens.size() == 1) {  // the next step, without a draft
      DraftTree none;
      std::vector<float> next = rows_of(none, 1 + tokens[0]);
      in.tree = &none;
      in.logits = {next.data(), {1, kV}};
      in.position = 11;
      in.max_tokens = 1;
      accept(in, &r);
      tokens.push_back(r.tokens[0]);
    }
    seen[tokens[0] * kV + tokens[1]] += 1;
  }
  EXPECT_GT(chi_square_p_value(seen, want), 0.001);
}

TEST(AcceptLaw, SampledChain) {
  expect_law(
      [](DraftTree* t, NoiseKey key) {
        add_siblings(t, -1, entries(draft_row(0)), 1, key, 10);
        add_siblings(t, 0, entries(draft_row(1 + t->tokens[0])), 1, key, 11);
      },
      Acceptance::kRejection);
}

TEST(AcceptLaw, SampledSiblingsWithoutReplacementOnTwoLevels) {
  expect_law(
      [](DraftTree* t, NoiseKey key) {
        add_siblings(t, -1, entries(draft_row(0)), 3, key, 10);
        int32_t n = t->size();
        for (int32_t i = 0; i < n; ++i)
          add_siblings(t, i, entries(draft_row(1 + t->tokens[i])), 2, {key.seed, 100u + i}, 11);
      },
      Acceptance::kRejection);
}

TEST(AcceptLaw, OneHotSiblings) {
  expect_law(
      [](DraftTree* t, NoiseKey) {
        t->add_one_hot(4, -1);
        t->add_one_hot(1, -1);
        t->add_one_hot(0, 0);
        t->add_one_hot(5, 1);
      },
      Acceptance::kRejection);
}

TEST(AcceptLaw, ADraftThatCannotSayATokenStillLetsItAppear) {
  expect_law(
      [](DraftTree* t, NoiseKey key) {
        add_siblings(t, -1, {{1, 0.5f}, {2, 0.5f}}, 1, key, 10);
      },
      Acceptance::kRejection);
}

TEST(AcceptLaw, CoupledWithAnyProposal) {
  expect_law(
      [](DraftTree* t, NoiseKey key) {
        t->add_one_hot(static_cast<int32_t>(key.seed % kV), -1);
        t->add_one_hot(2, 0);
      },
      Acceptance::kCoupled);
}

TEST(AcceptLaw, ThresholdAtOneIsExact) {
  expect_law(
      [](DraftTree* t, NoiseKey key) { add_siblings(t, -1, entries(draft_row(0)), 1, key, 10); },
      Acceptance::kThreshold);
}

// The classic fault: keeping a node because of what was drawn for it. Two tokens are drawn from q
// and only the likelier one becomes a node that claims q as its law. The test itself must see the
// bias.
TEST(AcceptLaw, SeesTheBiasWhenANodeDependsOnItsOwnDraw) {
  std::vector<double> p = target_row(0), seen(kV, 0);
  SamplingParams params;
  params.temperature = 1;
  StopParams stop;
  for (int i = 0; i < kDraws; ++i) {
    NoiseKey key{static_cast<uint64_t>(i), 0};
    auto q = entries(draft_row(0));
    int32_t a = pick(q, noise_uniform(key, 10, Purpose::kDraft, 0));
    int32_t b = pick(q, noise_uniform(key, 10, Purpose::kDraft, 1));
    DraftTree tree;
    tree.q_entries = q;
    tree.add(draft_row(0)[a] > draft_row(0)[b] ? a : b, -1, 0, 1);
    std::vector<float> logits;
    for (int row = 0; row < 2; ++row)
      for (double v : p) logits.push_back(static_cast<float>(std::log(v)));
    AcceptInput in{};
    in.tree = &tree;
    in.logits = {logits.data(), {2, kV}};
    in.params = &params;
    in.stop = &stop;
    in.key = key;
    in.position = 10;
    in.max_tokens = 1;
    AcceptResult r;
    accept(in, &r);
    seen[r.tokens[0]] += 1;
  }
  EXPECT_LT(chi_square_p_value(seen, p), 1e-9);
}

}  // namespace
}  // namespace pf
