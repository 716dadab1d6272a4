#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "speculation/drafter.h"

namespace pf {

// A head that drafts over the target's hidden states (Li et al., "EAGLE", 2024). Slot j of its KV
// plane is made of token j and the hidden state of token j - 1, so that a block's K and V depend on
// nothing behind the block, and prefixes are shared in this plane too; slot 0 stays empty.
//
// Hidden states exist only in the step that computed them, so `absorb` fills the plane in every
// step, whoever drafts and how much. What goes on from a block that others have filled needs the
// hidden state of the block's last token: that is kept for every block. A sequence whose plane
// cannot be filled for want of a hidden state is passed over.
class EagleDrafter final : public Drafter {
 public:
  struct Options {
    std::string name;
    int32_t plane = 1;
    int64_t max_context = 0;  // of the head's own training
    int64_t width = 0;        // E
    int32_t n_blocks = 0, block_tokens = 0;
  };
  EagleDrafter(Options options, std::unique_ptr<Backend> head);

  const std::string& name() const override { return options_.name; }
  int32_t plane() const override { return options_.plane; }
  int64_t max_context() const override { return options_.max_context; }
  bool absorbs() const override { return true; }
  int32_t match_length(const Sequence& sequence) override;
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  int64_t filled_after(const DraftTree&, std::span<const int32_t>,
                       int64_t n_tokens) const override {
    return n_tokens;  // the nodes' K and V were made of the head's own hidden states
  }
  void absorb(std::span<AbsorbTask> tasks, const Backend& target) override;
  void copy_blocks(std::span<const BlockCopy> copies) override { head_->copy_blocks(copies); }
  void fork(const Sequence& from, const Sequence& to) override;
  void forget(const Sequence& sequence) override { last_.erase(sequence.order); }

 private:
  struct Last {  // the hidden state of the last token that the target has run
    int64_t position = -1;
    std::vector<float> hidden;  // [E]
  };

  // Null when nobody knows it.
  const float* hidden_before(const Sequence& sequence, int64_t slot) const;
  bool fill(AbsorbTask* task, const Backend& target);
  void remember(const AbsorbTask& task, const Backend& target);
  float* of_block(BlockId block) { return of_blocks_.data() + block * options_.width; }

  const Options options_;
  std::unique_ptr<Backend> head_;
  std::unordered_map<uint64_t, Last> last_;  // by Sequence::order
  std::vector<float> of_blocks_;             // [N, E]: of the last token of each full block
  std::vector<ProposeJob> jobs_;             // reused
  std::vector<float> hidden_;                // reused: [rows, E] of the jobs
  std::vector<DraftTree> none_;              // reused
};

}  // namespace pf
