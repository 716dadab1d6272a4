// Truth: src/sampling/accept.cc, case by case: the same tokens, path and origins for the same p, q
// and keys, over all rules, chains and trees. The law of what is drawn is the host's own test
// (tests/sampling/accept_law_test.cc), which equality hands down.
#include <gtest/gtest.h>

#include "kernels/budget.h"
#include "kernels/sampling_case.h"
#include "ptxvm/ptxvm.h"
#include "sampling/grow.h"

namespace pf::kernels {
namespace {

using Rng = std::mt19937_64;
int between(Rng& rng, int first, int last) {
  return std::uniform_int_distribution<int>(first, last)(rng);
}
float real(Rng& rng, float first, float last) {
  return std::uniform_real_distribution<float>(first, last)(rng);
}

std::vector<float> random_row(Rng& rng, int V) {
  std::vector<float> row(static_cast<size_t>(V));
  const float spread = real(rng, 0.5f, 4.0f);
  const bool tied = between(rng, 0, 4) == 0;
  for (float& l : row) {
    l = std::normal_distribution<float>(0, spread)(rng);
    if (tied) l = std::round(l);
  }
  return row;
}

SamplingParams random_params(Rng& rng, int V) {
  SamplingParams p;
  if (between(rng, 0, 4) > 0) p.temperature = real(rng, 0.2f, 2.0f);
  if (between(rng, 0, 2) == 0) p.top_k = between(rng, 1, V + 3);
  if (between(rng, 0, 2) == 0) p.top_p = real(rng, 0.1f, 1.0f);
  if (between(rng, 0, 3) == 0) p.min_p = real(rng, 0.001f, 0.3f);
  if (between(rng, 0, 2) == 0) {
    p.presence_penalty = real(rng, -1, 2);
    p.frequency_penalty = real(rng, -1, 1);
    p.repetition_penalty = between(rng, 0, 1) ? real(rng, 0.8f, 1.6f) : 1.0f;
  }
  for (int t = between(rng, -3, 2); t >= 0; --t)
    p.logit_bias.push_back({between(rng, 0, 1) ? t : V - 1 - t,
                            between(rng, 0, 2) ? real(rng, -4, 4) : pf::kBannedBias});
  std::sort(p.logit_bias.begin(), p.logit_bias.end());
  p.logit_bias.erase(std::unique(p.logit_bias.begin(), p.logit_bias.end(),
                                 [](auto& a, auto& b) { return a.first == b.first; }),
                     p.logit_bias.end());
  return p;
}

// q over n random tokens, drawn from without replacement: the children of one node.
void add_random_children(Rng& rng, int V, int32_t parent, int n_children, DraftTree* tree) {
  const int kind = between(rng, 0, 2);  // one-hot, some tokens, all tokens
  std::vector<int32_t> tokens(static_cast<size_t>(V));
  for (int t = 0; t < V; ++t) tokens[static_cast<size_t>(t)] = t;
  std::shuffle(tokens.begin(), tokens.end(), rng);
  n_children = std::min(n_children, V);
  if (kind == 0) {
    for (int i = 0; i < n_children; ++i)
      tree->add_one_hot(tokens[static_cast<size_t>(i)], parent, real(rng, 0.1f, 1.0f));
    return;
  }
  const int n = kind == 2 ? V : std::max(n_children, between(rng, 1, V));
  std::vector<double> weights;
  double total = 0;
  for (int i = 0; i < n; ++i) {
    weights.push_back(std::exp(std::normal_distribution<double>(0, 2)(rng)));
    total += weights.back();
  }
  const auto first = static_cast<int32_t>(tree->q_entries.size());
  for (size_t i = 0; i < weights.size(); ++i)
    tree->q_entries.push_back({tokens[i], static_cast<float>(weights[i] / total)});
  std::vector<double> left = weights;
  for (int i = 0; i < n_children; ++i) {
    const auto x =
        static_cast<size_t>(std::discrete_distribution<int>(left.begin(), left.end())(rng));
    tree->add(tokens[x], parent, first, static_cast<float>(weights[x] / total));
    left[x] = 0;
  }
}

DraftTree random_tree(Rng& rng, int V) {
  DraftTree tree;
  const int depth = between(rng, 0, 4), widest = between(rng, 0, 1) ? 1 : 3;
  std::vector<int32_t> open{DraftTree::kRoot};
  for (int d = 0; d < depth; ++d) {
    std::vector<int32_t> next;
    for (int32_t node : open) {
      const int n =
          std::min(between(rng, node == DraftTree::kRoot ? 1 : 0, widest), 14 - tree.size());
      if (n <= 0) continue;
      const int32_t before = tree.size();
      add_random_children(rng, V, node, n, &tree);
      for (int32_t c = before; c < tree.size(); ++c) next.push_back(c);
    }
    open = next;
  }
  return tree;
}

SamplingCase random_case(Rng& rng, int V) {
  SamplingCase c;
  c.params = random_params(rng, V);
  c.policy.rule = static_cast<Acceptance>(between(rng, 0, 4));
  c.policy.alpha = real(rng, 0.2f, 1.1f);
  if (between(rng, 0, 1)) c.policy.loss_budget = real(rng, 0, 1);
  c.loss_spent = c.policy.loss_budget > 0 ? real(rng, 0, 0.5f) : 0;
  c.key = {rng(), static_cast<uint32_t>(between(rng, 0, 3))};
  c.position = between(rng, 0, 100000);
  c.n_generated = between(rng, 0, 6);
  c.tree = random_tree(rng, V);
  for (int t = between(rng, 0, 3); t > 0; --t) c.stop.end_ids.push_back(between(rng, 0, V - 1));
  std::sort(c.stop.end_ids.begin(), c.stop.end_ids.end());
  c.stop.min_new_tokens = between(rng, 0, 8);
  c.n_top = between(rng, -1, 5);
  c.max_tokens = between(rng, 0, 3) ? 100 : between(rng, 1, 3);
  if (c.params.has_penalties()) {
    c.counts.emplace();
    for (int i = between(rng, 0, 8); i > 0; --i)
      c.counts->add_prompt(std::vector<int32_t>{between(rng, 0, V - 1)});
    for (int i = between(rng, 0, 8); i > 0; --i) c.counts->add_output(between(rng, 0, V - 1));
  }
  // A good draft: the rows favour the nodes' tokens, so that walks go deep.
  for (int32_t row = 0; row <= c.tree.size(); ++row) {
    std::vector<float> l = random_row(rng, V);
    for (int32_t i = row; i < c.tree.size(); ++i)
      if (c.tree.parents[static_cast<size_t>(i)] == row - 1 && between(rng, 0, 1))
        l[static_cast<size_t>(c.tree.tokens[static_cast<size_t>(i)])] += real(rng, 0, 6);
    if (between(rng, 0, 150) == 0) l[static_cast<size_t>(between(rng, 0, V - 1))] = NAN;
    c.logits.insert(c.logits.end(), l.begin(), l.end());
  }
  return c;
}

template <class A, class B>
std::vector<int> ints(const A* from, B n) {
  std::vector<int> out;
  for (B i = 0; i < n; ++i) out.push_back(static_cast<int>(from[i]));
  return out;
}

void expect_same(const SamplingCase& c, const AcceptResult& want, const Accepted& got,
                 const std::string& where) {
  SCOPED_TRACE(where + " rule " + std::to_string(static_cast<int>(c.policy.rule)));
  ASSERT_EQ(ints(got.tokens, got.n_tokens), ints(want.tokens.data(), want.tokens.size()));
  EXPECT_EQ(ints(got.path, got.n_accepted), ints(want.path.data(), want.path.size()));
  EXPECT_EQ(ints(got.origins, got.n_tokens), ints(want.origins.data(), want.origins.size()));
  EXPECT_EQ(got.ended, want.ended);
  EXPECT_EQ(got.finite, want.finite);
  // p is rounded to float once more than the exact rule needs: 2^-23 of a quotient below 1 each.
  for (int32_t i = 0; i < got.n_tokens; ++i)
    EXPECT_NEAR(got.losses[i], want.losses.empty() ? 0 : want.losses[static_cast<size_t>(i)], 2e-6);
  for (size_t i = 0; i < want.logprobs.size(); ++i)
    EXPECT_NEAR(got.logprobs[i], want.logprobs[i].logprob,
                1e-6 * std::max(1.0f, std::abs(want.logprobs[i].logprob)));
}

void expect_same_top(const SamplingCase& c, const AcceptResult& want, const Judged& judged,
                     size_t b, int n_top) {
  for (size_t i = 0; i < want.logprobs.size(); ++i) {
    const int32_t node = i == 0 ? -1 : want.path[i - 1];
    const TokenValue* top =
        judged.top.data() + static_cast<size_t>((judged.first_row[b] + 1 + node) * n_top);
    const auto& list = want.logprobs[i].top;
    ASSERT_EQ(list.size(),
              static_cast<size_t>(std::min<int64_t>(
                  c.n_top, static_cast<int64_t>(c.logits.size()) / (1 + c.tree.size()))));
    for (size_t j = 0; j < list.size(); ++j) {
      EXPECT_EQ(top[j].token, list[j].token);
      if (std::isfinite(list[j].logprob))
        EXPECT_NEAR(top[j].value, list[j].logprob, 1e-6 * (1 + std::abs(list[j].logprob)));
      else
        EXPECT_EQ(top[j].value, list[j].logprob);
    }
  }
}

class AcceptCases : public testing::TestWithParam<int> {};

TEST_P(AcceptCases, TheDeviceKeepsAndDrawsWhatTheHostDoes) {
  const int V = GetParam(), n_top = 5;
  Rng rng(static_cast<uint64_t>(V) * 977);
  for (int round = 0; round < 2; ++round) {
    ptxvm::settings().seed = static_cast<uint32_t>(round * 17);
    std::vector<SamplingCase> cases;
    for (int i = 0; i < 80; ++i) cases.push_back(random_case(rng, V));
    const Judged judged = judge_on_device(cases, V, n_top);
    for (size_t b = 0; b < cases.size(); ++b) {
      const AcceptResult want = cases[b].on_host(V);
      expect_same(cases[b], want, judged.accepted[b], "case " + std::to_string(b));
      expect_same_top(cases[b], want, judged, b, n_top);
      if (testing::Test::HasFailure()) break;
    }
  }
  ptxvm::settings().seed = 0;
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, AcceptCases,
                         testing::Values(5, 6, 7, 11, 16, 31, 32, 33, 64, 127, 128, 129, 200));

std::vector<SamplingCase> random_cases(int V, int n) {
  Rng rng(static_cast<uint64_t>(V) * 31);
  std::vector<SamplingCase> cases;
  for (int i = 0; i < n; ++i) cases.push_back(random_case(rng, V));
  return cases;
}

TEST(AcceptBudget, TheCasesReachTheKernels) {
  ptxvm::clear_measures();
  for (int V : {6, 33, 200}) judge_on_device(random_cases(V, 100), V, 5);
  judge_on_device(random_cases(4500, 8), 4500, 5);
  expect_within({0.95, 100, 100}, "laws_kernel");
  expect_within({0.95, 100, 100}, "accept_kernel");
}

// A row as wide as a real one: neighbours read neighbours, so sectors are full. The atomics on bins
// collide as the values do; twice the ideal is what normal logits were seen to cost.
TEST(AcceptBudget, LongRowsMoveFullSectors) {
  const int V = 32768;
  Rng rng(8);
  std::vector<SamplingCase> cases(4);
  for (SamplingCase& c : cases) {  // two rejected siblings, then a draw from the residual
    c.params.temperature = 1;
    c.params.top_p = 0.95f;
    for (int32_t t = 0; t < 100; ++t) c.tree.q_entries.push_back({t * 300, 0.01f});
    c.tree.add(0, -1, 0, 0.01f);
    c.tree.add(300, -1, 0, 0.01f);
    for (int row = 0; row < 3; ++row) {
      std::vector<float> l = random_row(rng, V);
      l[0] = l[300] = -30;
      c.logits.insert(c.logits.end(), l.begin(), l.end());
    }
  }
  ptxvm::clear_measures();
  const Judged judged = judge_on_device(cases, V);
  for (size_t b = 0; b < cases.size(); ++b)
    expect_same(cases[b], cases[b].on_host(V), judged.accepted[b], "case " + std::to_string(b));
  expect_within({0, 2.5, 1.05}, "laws_kernel");
  expect_within({0, 2.5, 1.05}, "accept_kernel");
}

}  // namespace
}  // namespace pf::kernels
