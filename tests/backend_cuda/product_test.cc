// Truth: losslessness, as tests/engine/product_test.cc asks it of the CPU backend: every drafter
// under every rule that promises the plain text, chains and trees, for every K and batch, here on
// the CUDA backend in the PTX machine. The text of each request computed alone without drafts says
// what it must say. All combinations would take an hour: so many run that any two values of two
// factors meet, which is where faults lie (Kuhn et al. 2004, "Software fault interactions").
#include <set>

#include "backend_cuda/cuda_engine.h"
#include "engine/drafter_names.h"

namespace pf {
namespace {

using Texts = std::map<uint64_t, std::vector<int32_t>>;

// How each drafter is made. One that --speculation knows and that is missing here fails the test.
std::map<std::string, CudaSetting> drafters() {
  return {{"ngram", {.ngram = true}},
          {"suffix", {.suffix = true}},
          {"lookahead", {.lookahead = true}},
          {"early-exit", {.exit_layers = 1}},
          {"model", {.model = true}},
          {"eagle", {.head = HeadKind::kEagle}},
          {"medusa", {.medusa = true}},
          {"cascade", {.cascade = true}},
          // Those that have no name of their own among the drafters.
          {"predicted", {}},
          {"EAGLE-3", {.head = HeadKind::kEagle3}},
          {"a list: n-grams, a model, a head",
           {.ngram = true, .model = true, .head = HeadKind::kEagle}},
          {"a model of a vocabulary of its own", {.model = true, .reduced = true}},
          {"a model on the CPU", {.cpu_draft = true}}};
}

struct Rule {
  const char* name;
  bool greedy;  // else every second request is coupled
  std::optional<AcceptPolicy> policy;
};

AcceptPolicy named(Acceptance rule) {
  AcceptPolicy p;
  p.rule = rule;
  p.alpha = 1;
  return p;
}

const Rule kRules[] = {{"auto", false, {}},
                       {"coupled", false, named(Acceptance::kCoupled)},
                       {"rejection, greedy", true, named(Acceptance::kRejection)},
                       {"threshold 1, greedy", true, named(Acceptance::kThreshold)}};

struct Shape {
  int32_t k;
  std::vector<int32_t> tree;
  int32_t nodes;
};
const Shape kShapes[] = {{0, {}, 0}, {1, {}, 0},        {2, {}, 0}, {4, {}, 0},
                         {8, {}, 0}, {3, {3, 2, 1}, 0}, {4, {}, 7}};
constexpr uint64_t kBatches[] = {1, 5, 14};
constexpr int32_t kNewTokens = 14;

// The values of the factors, by number: drafter, rule, shape, batch, graphs.
using Case = std::array<size_t, 5>;

// A set of cases in which any two values of two factors meet. Greedy: each adds the most pairs.
std::vector<Case> pairwise(const Case& n_values) {
  using Pair = std::array<size_t, 4>;  // factor, value, factor, value
  auto pairs_of = [](const Case& c) {
    std::vector<Pair> pairs;
    for (size_t f = 0; f < c.size(); ++f)
      for (size_t g = f + 1; g < c.size(); ++g) pairs.push_back({f, c[f], g, c[g]});
    return pairs;
  };
  std::vector<Case> all(1);
  for (size_t f = 0; f < n_values.size(); ++f) {
    std::vector<Case> longer;
    for (const Case& c : all)
      for (size_t v = 0; v < n_values[f]; ++v) (longer.emplace_back(c))[f] = v;
    all = std::move(longer);
  }
  std::set<Pair> missing;
  for (const Case& c : all)
    for (const Pair& p : pairs_of(c)) missing.insert(p);
  std::vector<Case> chosen;
  while (!missing.empty()) {
    auto news = [&](const Case& c) {
      int n = 0;
      for (const Pair& p : pairs_of(c)) n += missing.contains(p);
      return n;
    };
    const Case best = *std::max_element(
        all.begin(), all.end(), [&](const Case& a, const Case& b) { return news(a) < news(b); });
    for (const Pair& p : pairs_of(best)) missing.erase(p);
    chosen.push_back(best);
  }
  return chosen;
}

std::vector<uint64_t> first(uint64_t n) {
  std::vector<uint64_t> numbers;
  for (uint64_t i = 1; i <= n; ++i) numbers.push_back(i);
  return numbers;
}

Texts first(const Texts& all, uint64_t n) {
  Texts out;
  for (uint64_t i : first(n)) out.emplace(i, all.at(i));
  return out;
}

TEST(CudaProduct, EveryTwoChoicesMeetAndKeepTheText) {
  std::map<std::string, CudaSetting> all = drafters();
  for (std::string_view drafter : known_drafters())
    EXPECT_TRUE(all.contains(std::string(drafter))) << "never tried: " << drafter;
  CudaSetting plain{.temperature = 2, .n_new_tokens = kNewTokens};
  const Texts mixed = alone(plain, 14);
  plain.temperature = 0;
  const Texts greedy = alone(plain, 14);
  ASSERT_NE(mixed, greedy);

  const std::vector<Case> cases =
      pairwise({all.size(), std::size(kRules), std::size(kShapes), std::size(kBatches), 2});
  EXPECT_GE(cases.size(), all.size() * std::size(kShapes)) << "each drafter in each shape";
  std::map<std::string, int64_t> drafted, accepted;
  for (const Case& c : cases) {
    auto drafter = std::next(all.begin(), static_cast<std::ptrdiff_t>(c[0]));
    const Rule& rule = kRules[c[1]];
    const Shape& shape = kShapes[c[2]];
    const uint64_t n = kBatches[c[3]];
    SCOPED_TRACE(drafter->first + ", " + rule.name + ", k " + std::to_string(shape.k) +
                 ", tree of " + std::to_string(shape.tree.size()) + " levels, " +
                 std::to_string(shape.nodes) + " nodes that grow, batch " + std::to_string(n) +
                 (c[4] ? ", graphs" : ""));
    CudaSetting setting = drafter->second;
    setting.k = shape.k;
    setting.tree = shape.tree;
    setting.tree_nodes = shape.nodes;
    setting.n_blocks = 80;
    setting.graphs = c[4] == 1;
    setting.temperature = rule.greedy ? 0 : 2;
    setting.policy = rule.policy;
    setting.n_new_tokens = kNewTokens;
    setting.max_num_seqs = 16;
    const Texts want = first(rule.greedy ? greedy : mixed, n);
    if (drafter->first == "predicted") {
      setting.predicted = want;
      for (auto& [i, text] : setting.predicted) text[i % kNewTokens] ^= 1;
    }
    CudaEngine engine(setting);
    EXPECT_EQ(engine.run(first(n)), want);
    for (const auto& f : ptxvm::take_findings()) ADD_FAILURE() << ptxvm::to_text(f);
    EXPECT_TRUE(shape.k > 0 || engine.drafted == 0);
    drafted[drafter->first] += engine.drafted;
    accepted[drafter->first] += engine.accepted;
  }
  for (const auto& [drafter, setting] : all) {
    EXPECT_GT(drafted[drafter], 0) << drafter;
    EXPECT_LT(accepted[drafter], drafted[drafter]) << drafter;
  }
}

}  // namespace
}  // namespace pf
