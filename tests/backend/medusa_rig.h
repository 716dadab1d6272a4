#pragma once

// What both backends' tests of Medusa heads share: jobs over states, and what a draft of them must
// be by the float64 definition.

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/backend.h"
#include "backend/tiny_medusa.h"

namespace pf {

using States = std::vector<std::vector<double>>;  // [rows, E], exact in the target's numbers

struct MedusaJobs {
  SamplingParams greedy;
  StopParams stop;
  std::vector<int32_t> text = {5, 6, 7};
  std::vector<HiddenRef> refs;
  std::vector<ProposeJob> jobs;
  std::vector<DraftTree> trees;

  // One job for each slot.
  MedusaJobs(const std::vector<int32_t>& slots, int32_t n_draft,
             std::span<const int32_t> widths = {}) {
    for (int32_t slot : slots) refs.push_back({HiddenRef::In::kBlock, slot});
    for (size_t j = 0; j < slots.size(); ++j) {
      ProposeJob job;
      job.committed = std::span(text).last(1);
      job.base = 2;
      job.hidden = std::span(refs).subspan(j, 1);
      job.n_draft = n_draft;
      job.widths = widths;
      job.params = &greedy;
      job.stop = &stop;
      jobs.push_back(job);
    }
    trees.resize(slots.size());
  }
};

// The likeliest tokens of logits, the first `n` in order. Dies (fails the test) where two of them
// are too near for the numbers in use to tell.
inline std::vector<int32_t> likeliest(const std::vector<double>& logits, int32_t n, double apart) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  auto more = [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  };
  std::stable_sort(order.begin(), order.end(), more);
  for (int32_t i = 0; i < n; ++i)
    EXPECT_GT(logits[static_cast<size_t>(order[static_cast<size_t>(i)])] -
                  logits[static_cast<size_t>(order[static_cast<size_t>(i) + 1])],
              apart)
        << "choose another seed: the definition itself is a near tie";
  order.resize(static_cast<size_t>(n));
  return order;
}

// A tree of these widths holds at each node the likeliest tokens of the level's head, whatever the
// node is, and the scores are softmax at temperature 1 within `tolerance` of the definition's.
inline void expect_heads(const Model& m, const std::vector<double>& state, const DraftTree& tree,
                         const std::vector<int32_t>& widths, double tolerance) {
  int32_t node = 0, n_above = 1;
  for (size_t level = 0; level < widths.size(); ++level) {
    const std::vector<double> logits = define_medusa(m, level, state);
    const std::vector<int32_t> want = likeliest(logits, widths[level], tolerance);
    double total = 0;
    for (double x : logits) total += std::exp(x);
    for (int32_t above = 0; above < n_above; ++above)
      for (int32_t token : want) {
        ASSERT_LT(node, tree.size());
        auto i = static_cast<size_t>(node++);
        EXPECT_EQ(tree.tokens[i], token) << "node " << i;
        EXPECT_EQ(tree.depths[i], static_cast<int32_t>(level) + 1);
        EXPECT_NEAR(std::log(static_cast<double>(tree.scores[i])),
                    logits[static_cast<size_t>(token)] - std::log(total), tolerance)
            << "node " << i;
      }
    n_above *= widths[level];
  }
  EXPECT_EQ(node, tree.size());
}

}  // namespace pf
