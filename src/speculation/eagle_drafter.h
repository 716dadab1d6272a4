#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "speculation/drafter.h"

namespace pf {

// A head that drafts over the target's hidden states (Li et al., "EAGLE", 2024). Slot j of its KV
// plane is made of token j and the hidden state of token j - 1, so that a block's K and V depend on
// nothing behind the block, and prefixes are shared in this plane too; slot 0 stays empty.
//
// Hidden states exist only in the step that computed them, so `absorb` fills the plane in every
// step, whoever drafts and how much. They never leave the target's device: this class names them by
// row. What goes on behind a step needs the hidden state of the last token that was run; it is kept
// beside the KV block that holds the token. So a block that is full keeps the state of its last
// token, and whoever finds it in the prefix index can go on. A sequence whose plane cannot be
// filled for want of a hidden state is passed over.
class EagleDrafter final : public Drafter {
 public:
  struct Options {
    std::string name;
    int32_t plane = 1;
    int64_t max_context = 0;  // of the head's own training
    int32_t n_blocks = 0, block_tokens = 0;
  };
  // `head` was made with the hidden states of the target whose steps are absorbed.
  EagleDrafter(Options options, std::unique_ptr<Backend> head);

  const std::string& name() const override { return options_.name; }
  int32_t plane() const override { return options_.plane; }
  int64_t max_context() const override { return options_.max_context; }
  bool absorbs() const override { return true; }
  int32_t match_length(const Sequence& sequence) override;
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  // The nodes' K and V were made of the head's own hidden states: `absorb` makes others for those
  // that are kept.
  void settle(std::span<JudgedDraft> drafts) override {
    for (JudgedDraft& d : drafts) d.filled = d.n_tokens;
  }
  void absorb(std::span<AbsorbTask> tasks) override;
  void copy_blocks(std::span<const BlockCopy> copies) override;
  void forget(const Sequence&) override {}

 private:
  // Whether the hidden state of the token before a slot is kept, and where.
  bool knows_before(const Sequence& sequence, int64_t slot, HiddenRef* at) const;
  bool fill(AbsorbTask* task);
  void remember(const AbsorbTask& task);
  void keep(const AbsorbTask& task, size_t row);

  const Options options_;
  std::unique_ptr<Backend> head_;
  std::vector<int32_t> kept_at_;   // [N]: of which of the block's tokens a state is kept; -1: none
  std::vector<ProposeJob> jobs_;   // reused
  std::vector<HiddenRef> hidden_;  // reused: of the jobs' rows
  std::vector<HiddenKeep> keeps_;  // reused
  std::vector<DraftTree> none_;    // reused
};

}  // namespace pf
