// Truth: rows worked out by hand. A tree is fed level by level, each node once.
#include "backend/draft_levels.h"

#include <gtest/gtest.h>

namespace pf {
namespace {

// A device that always says 10, 11, 12 and 13, the first the likeliest, and remembers its passes.
struct Recorder {
  std::vector<Batch> passes;
  std::vector<std::vector<HiddenRef>> hidden;

  DraftLevels::Device device() {
    DraftLevels::Device d;
    d.forward = [this](const Batch& batch, std::span<const HiddenRef> states) {
      passes.push_back(batch);
      hidden.emplace_back(states.begin(), states.end());
    };
    d.list = [](std::span<const int32_t> rows, std::span<std::vector<TokenProbability>> out) {
      for (size_t i = 0; i < rows.size(); ++i) out[i] = {{10, 4}, {11, 3}, {12, 2}, {13, 1}};
    };
    d.max_rows = 64;
    return d;
  }
  std::vector<int32_t> rows_of_passes() const {
    std::vector<int32_t> n;
    for (const Batch& b : passes) n.push_back(b.n_rows());
    return n;
  }
};

struct Draft {
  std::vector<int32_t> committed = {1, 2, 3};
  std::vector<BlockId> blocks = {7, 8, 9, 10};
  std::vector<HiddenRef> hidden;
  SamplingParams params;
  StopParams stop;

  ProposeJob job(int32_t n_draft, std::span<const int32_t> widths, int32_t grown_levels = 0) {
    params.temperature = 0;
    ProposeJob j;
    j.committed = committed;
    j.base = 5;  // the root stands at 7
    j.hidden = hidden;
    j.blocks = blocks;
    j.n_draft = n_draft;
    j.widths = widths;
    j.grown_levels = grown_levels;
    j.params = &params;
    j.stop = &stop;
    return j;
  }
};

// Widths 3, 2, 1: three nodes and six are fed; of the last six nobody asks what comes behind.
TEST(DraftLevels, ATreesNodesAreFedOnce) {
  Recorder recorder;
  Draft draft;
  const std::vector<int32_t> widths = {3, 2, 1};
  const ProposeJob job = draft.job(15, widths);
  DraftTree tree;
  DraftLevels(recorder.device()).grow({&job, 1}, {&tree, 1});
  ASSERT_EQ(tree.size(), 15);
  EXPECT_EQ(recorder.rows_of_passes(), (std::vector<int32_t>{3, 3, 6}));

  const Batch& second = recorder.passes[1];
  EXPECT_EQ(second.tokens, (std::vector<int32_t>{10, 11, 12}));
  EXPECT_EQ(second.positions, (std::vector<int32_t>{8, 8, 8}));
  EXPECT_EQ(second.slots, (std::vector<int32_t>{8, 9, 10}));
  EXPECT_EQ(second.visible, (std::vector<int32_t>{8, 8, 8}));
  EXPECT_EQ(second.masks, (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_EQ(second.segments[0].node_slot(0), 8);

  const Batch& third = recorder.passes[2];
  EXPECT_EQ(third.tokens, (std::vector<int32_t>{10, 11, 10, 11, 10, 11}));
  EXPECT_EQ(third.positions, std::vector<int32_t>(6, 9));
  EXPECT_EQ(third.slots, (std::vector<int32_t>{11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(third.visible, std::vector<int32_t>(6, 8));
  EXPECT_EQ(third.masks, (std::vector<uint64_t>{1 | 8, 1 | 16, 2 | 32, 2 | 64, 4 | 128, 4 | 256}));
}

// Where each pass begins is seen by whatever lies before it in the batch: two drafts at once. A
// head's row is made of what it said of the node above, which was in the pass before.
TEST(DraftLevels, AHeadsRowsPointToThePassBefore) {
  Recorder recorder;
  Draft chain, tree_draft;
  chain.hidden = tree_draft.hidden = {
      {HiddenRef::In::kBlock, 3}, {HiddenRef::In::kForward, 4}, {HiddenRef::In::kForward, 5}};
  const std::vector<int32_t> widths = {2, 1, 1};
  const ProposeJob jobs[] = {chain.job(3, {}), tree_draft.job(6, widths)};
  DraftTree trees[2];
  DraftLevels(recorder.device()).grow(jobs, trees);
  EXPECT_EQ(recorder.rows_of_passes(), (std::vector<int32_t>{6, 3, 3}));
  auto own = [&](size_t pass) {
    std::vector<int32_t> rows;
    for (const HiddenRef& h : recorder.hidden[pass]) {
      EXPECT_EQ(h.in, HiddenRef::In::kOwn);
      rows.push_back(h.index);
    }
    return rows;
  };
  // Logit rows of the first pass: the two roots'. Of the second: the chain's node, the tree's two.
  EXPECT_EQ(own(1), (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(own(2), (std::vector<int32_t>{0, 1, 2}));
}

// A tree that grows to six nodes in three levels feeds three a level, at most, and the last none.
TEST(DraftLevels, ATreeThatGrowsIsFedOnceToo) {
  Recorder recorder;
  Draft draft;
  const ProposeJob job = draft.job(6, {}, 3);
  DraftTree tree;
  DraftLevels(recorder.device()).grow({&job, 1}, {&tree, 1});
  EXPECT_EQ(tree.size(), 6);
  ASSERT_EQ(recorder.passes.size(), 3u);
  EXPECT_LE(recorder.passes[1].n_rows(), 3);
  EXPECT_EQ(recorder.passes[2].slots[0], 8 + recorder.passes[1].n_rows());
  EXPECT_LE(recorder.passes[2].n_rows(), 3);
}

}  // namespace
}  // namespace pf
