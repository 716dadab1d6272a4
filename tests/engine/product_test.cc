// Truth: losslessness. Every drafter of the product under every rule that promises the plain text,
// chains and trees, for every K and batch: the plain loop says what each must say.
#include <gtest/gtest.h>

#include "engine/drafter_names.h"
#include "engine/harness.h"

namespace pf {
namespace {

// How the harness makes each drafter. One that --speculation knows and that is missing here fails
// the test below.
std::map<std::string, HarnessOptions> cells() {
  std::map<std::string, HarnessOptions> all;
  all["ngram"] = {.ngram = true};
  all["suffix"] = {.suffix = true};
  all["lookahead"] = {.lookahead = true};
  all["early-exit"] = {.exit_agreement = 44};
  all["model"] = {.draft_agreement = 44};
  all["eagle"] = {.eagle_agreement = 44};
  all["medusa"] = {.medusa_agreement = 44};
  all["cascade"] = {.draft_agreement = 44, .cascade = true, .cascade_only = true};
  return all;
}

// Those that have no name of their own among the drafters.
std::map<std::string, HarnessOptions> further_cells() {
  std::map<std::string, HarnessOptions> all;
  all["predicted"] = {.predicted = true};
  all["a cascade of three levels"] = {
      .draft_agreement = 44, .cascade = true, .cascade_only = true, .inner_agreement = 30};
  all["a list: n-grams, heads, a model"] = {
      .draft_agreement = 44, .eagle_agreement = 30, .ngram = true};
  all["a model in a window"] = {
      .draft_agreement = 44, .draft_in_tables = false, .window_tokens = 64, .n_window_blocks = 900};
  all["a model on a device of its own"] = all["a model in a window"];
  all["a model on a device of its own"].overlaps = true;
  return all;
}

struct Rule {
  const char* name;
  float temperature;
  bool has_seed;
  std::optional<AcceptPolicy> policy;
};

std::vector<Rule> rules() {
  auto named = [](Acceptance rule) {
    AcceptPolicy p;
    p.rule = rule;
    p.alpha = 1;
    return p;
  };
  return {{"auto, greedy", 0, false, {}},
          {"auto, seeded", 0.8f, true, {}},
          {"coupled", 0.8f, true, named(Acceptance::kCoupled)},
          {"coupled, greedy", 0, true, named(Acceptance::kCoupled)},
          {"rejection, greedy", 0, false, named(Acceptance::kRejection)},
          {"threshold 1, greedy", 0, false, named(Acceptance::kThreshold)}};
}

struct Shape {
  int32_t k;
  std::vector<int32_t> tree;
  int32_t nodes;
};
const std::vector<Shape> kShapes = {{0, {}, 0}, {1, {}, 0},        {2, {}, 0}, {4, {}, 0},
                                    {8, {}, 0}, {3, {3, 2, 1}, 0}, {4, {}, 7}};

int64_t expect_plain(const HarnessOptions& o, const Rule& rule, int32_t n) {
  Harness h(o);
  std::map<uint64_t, std::pair<Request, std::vector<int32_t>>> asked;
  for (int32_t i = 0; i < n; ++i) {
    auto r = h.request(prompt_of(6 + 11 * (i % 4), static_cast<uint32_t>(i)), 18 + i % 5);
    r->sampling.temperature = rule.temperature;
    r->has_seed = rule.has_seed;
    std::vector<int32_t> plain = plain_run(o.model, *r, 0, o.max_context).tokens;
    if (o.predicted) {
      r->speculation.predicted = plain;
      r->speculation.predicted[plain.size() / 2] ^= 1;
    }
    if (rule.policy) {
      r->speculation.rule = SpeculationParams::Rule::kNamed;
      r->speculation.policy = *rule.policy;
      r->speculation.has_alpha = true;
    }
    asked.emplace(r->ticket, std::pair(*r, plain));
    h.submit(std::move(r));
  }
  h.run();
  for (auto& [ticket, request] : asked)
    EXPECT_EQ((h.replies[{ticket, 0}].tokens), request.second) << "request " << ticket;
  return h.step->snapshot().n_drafted;
}

void expect_lossless(HarnessOptions o) {
  o.n_blocks = 900;
  o.max_num_batched_tokens = 160;
  for (const Rule& rule : rules())
    for (const Shape& shape : kShapes) {
      o.k = shape.k;
      o.tree = shape.tree;
      o.tree_nodes = shape.nodes;
      int64_t drafted = 0;
      for (int32_t n : {1, 7, 32}) {
        SCOPED_TRACE(std::string(rule.name) + ", k " + std::to_string(o.k) + ", tree of " +
                     std::to_string(shape.tree.size()) + " levels, " + std::to_string(shape.nodes) +
                     " nodes that grow, batch " + std::to_string(n));
        drafted += expect_plain(o, rule, n);
      }
      EXPECT_EQ(drafted > 0, shape.k > 0) << rule.name << ", k " << shape.k;
    }
}

TEST(Product, EveryDrafterThatHasAName) {
  std::map<std::string, HarnessOptions> all = cells();
  for (std::string_view drafter : known_drafters()) {
    SCOPED_TRACE(std::string(drafter));
    auto cell = all.find(std::string(drafter));
    if (cell == all.end()) {
      ADD_FAILURE() << "--speculation knows a drafter that this suite does not try";
      continue;
    }
    expect_lossless(cell->second);
    all.erase(cell);
  }
  EXPECT_TRUE(all.empty()) << all.begin()->first << " is no drafter of the product";
}

TEST(Product, EveryOtherWayToDraft) {
  for (auto& [name, options] : further_cells()) {
    SCOPED_TRACE(name);
    expect_lossless(options);
  }
}

}  // namespace
}  // namespace pf
