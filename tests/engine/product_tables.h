#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "batch/request.h"
#include "engine/drafter_names.h"

// What the losslessness suites cross: the CPU's over hash models, and the CUDA backend's.
namespace pf {

struct Rule {
  const char* name;
  bool sampled, has_seed;
  std::optional<AcceptPolicy> policy;  // none: auto
  bool keeps_text;                     // the plain text, not only its law

  void ask(float temperature, Request* r) const {
    r->sampling.temperature = sampled ? temperature : 0;
    r->has_seed = has_seed;
    if (!policy) return;
    r->speculation.rule = SpeculationParams::Rule::kNamed;
    r->speculation.policy = *policy;
    r->speculation.has_alpha = true;
  }
};

inline AcceptPolicy policy_of(Acceptance rule, float alpha = 1, float loss_budget = -1) {
  AcceptPolicy p;
  p.rule = rule;
  p.alpha = alpha;
  p.loss_budget = loss_budget;
  return p;
}

// Those that promise the plain text.
inline std::vector<Rule> exact_rules() {
  return {{"auto, greedy", false, false, {}, true},
          {"auto, seeded", true, true, {}, true},
          {"coupled", true, true, policy_of(Acceptance::kCoupled), true},
          {"coupled, greedy", false, true, policy_of(Acceptance::kCoupled), true},
          {"rejection, greedy", false, false, policy_of(Acceptance::kRejection), true},
          {"threshold 1, greedy", false, false, policy_of(Acceptance::kThreshold), true}};
}

// Those whose text depends on what was drafted.
inline std::vector<Rule> drawing_rules() {
  return {{"auto, without a seed", true, false, {}, false},
          {"rejection", true, true, policy_of(Acceptance::kRejection), false},
          {"threshold", true, false, policy_of(Acceptance::kThreshold, 0.3f), false},
          {"threshold, greedy", false, false, policy_of(Acceptance::kThreshold, 0.3f), false},
          {"threshold, limited", true, false, policy_of(Acceptance::kThreshold, 0.3f, 0.1f), false},
          {"threshold-literal", true, true, policy_of(Acceptance::kThresholdLiteral, 0.3f), false},
          {"typical", true, false, policy_of(Acceptance::kTypical), false}};
}

struct Shape {
  int32_t k;
  std::vector<int32_t> tree;
  int32_t nodes;  // of trees that grow

  std::string text() const {
    return "k " + std::to_string(k) + ", tree of " + std::to_string(tree.size()) + " levels, " +
           std::to_string(nodes) + " nodes that grow";
  }
};
inline const std::vector<Shape> kShapes = {{0, {}, 0}, {1, {}, 0},        {2, {}, 0}, {4, {}, 0},
                                           {8, {}, 0}, {3, {3, 2, 1}, 0}, {4, {}, 7}};

// Fails where --speculation knows a drafter that a suite does not try, or a suite one that it does
// not know.
template <typename Cell>
void expect_every_drafter(std::map<std::string, Cell> cells) {
  for (std::string_view drafter : known_drafters())
    EXPECT_EQ(cells.erase(std::string(drafter)), 1u) << drafter << " is not tried";
  EXPECT_TRUE(cells.empty()) << cells.begin()->first << " is no drafter of the product";
}

}  // namespace pf
