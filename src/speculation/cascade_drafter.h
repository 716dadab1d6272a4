#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "speculation/drafter.h"

namespace pf {

// A cheap drafter's tokens filtered by a better draft model before the target sees them (Chen et
// al., "Cascade Speculative Drafting", 2023): the model runs all of them in one pass, keeps what it
// would have said and appends one token of its own. What it proposes is a sample of the model, by
// sampling/grow.h. Drafts as deep as the model's chain for one of its passes instead of many; where
// the cheap one has nothing to say it falls silent. The cheap one may be a cascade itself.
class CascadeDrafter final : public Drafter {
 public:
  struct Options {
    std::string name;
    int32_t plane = 1;
    int64_t max_context = 0;  // of the model's own training
    int32_t max_rows = 512;   // of a pass of the model
    int32_t n_top = 128;      // tokens that q ranges over
  };
  // `model` outlives this, or is `own`.
  CascadeDrafter(Options options, std::unique_ptr<Drafter> cheap, Backend* model,
                 std::unique_ptr<Backend> own = nullptr);

  const std::string& name() const override { return options_.name; }
  int32_t plane() const override { return options_.plane; }
  int64_t lag(const Sequence& sequence) const override {
    return sequence.n_tokens() - sequence.table.filled[static_cast<size_t>(options_.plane)];
  }
  int64_t max_context() const override {
    return std::min(options_.max_context, cheap_->max_context());
  }
  int32_t match_length(const Sequence& sequence) override { return cheap_->match_length(sequence); }
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  void settle(std::span<JudgedDraft> drafts) override;
  Drafter* inner() override { return cheap_.get(); }
  int64_t filled_inside(const Sequence& sequence) const override;
  void copy_blocks(std::span<const BlockCopy> copies) override;
  void forget(const Sequence& sequence) override;

  Backend& backend() { return *model_; }

 private:
  void ask_cheap(std::span<const DraftTask> tasks);
  int64_t base(const DraftTask& task) const;
  int64_t n_fed(const DraftTask& task) const;  // committed tokens that the model runs
  void judge_pass(std::span<const DraftTask> tasks, std::span<const DraftTree> cheap,
                  std::span<DraftTree> trees);
  void settle_inside(std::span<const JudgedDraft> drafts);
  void judge_one(const DraftTask& task, const DraftTree& cheap, int32_t first_row, DraftTree* tree);

  const Options options_;
  const uint32_t level_;  // 1: the cheap one judges nothing
  std::unique_ptr<Drafter> cheap_;
  std::unique_ptr<Backend> own_;
  Backend* model_;
  struct Inside {
    int64_t filled = 0;  // filled_inside
    size_t task = 0;     // of the last propose
    bool drafted = false;
  };
  std::unordered_map<uint64_t, Inside> inside_;  // by Sequence::order
  // Reused.
  std::vector<DraftTask> cheap_tasks_;
  std::vector<size_t> cheap_of_;        // by cheap task: its task
  std::vector<DraftTree> cheap_trees_;  // by task
  std::vector<DraftTree> answers_;      // by cheap task
  std::vector<JudgedDraft> judged_;     // of the cheap one
  Batch batch_;
  std::vector<int32_t> first_rows_;                 // by task of a pass: its first logit row
  std::vector<float> logits_;                       // [rows of one task, V]
  std::vector<std::vector<TokenProbability>> top_;  // by row of one task
};

}  // namespace pf
