#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "speculation/drafter.h"

namespace pf {

// Several heads over the target's last hidden state, one for each position to come (Cai et al.,
// "Medusa", 2024). Head i was trained to name the token at i + 2 behind the one whose state it
// reads. The state behind the last token but one is there when the last token, the root, is known;
// so head 0 names what follows the root, and a draft has as many levels as there are heads.
//
// There is no plane and nothing to catch up with: `absorb` keeps the state of the last token that
// the target has run for each sequence in a step, and who had no rows in the last step is passed
// over in the next. Which trees keep the law is said in backend/head_drafts.h.
class MedusaDrafter final : public Drafter {
 public:
  struct Options {
    std::string name;
    int32_t n_heads = 0;
  };
  // `heads` keeps as many states as a step has sequences.
  MedusaDrafter(Options options, std::unique_ptr<Backend> heads)
      : options_(std::move(options)), heads_(std::move(heads)) {}

  const std::string& name() const override { return options_.name; }
  int32_t max_depth() const override { return options_.n_heads; }
  bool absorbs() const override { return true; }
  int32_t match_length(const Sequence& sequence) override;
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  void absorb(std::span<AbsorbTask> tasks) override;
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence& sequence) override { kept_.erase(sequence.order); }

 private:
  struct Kept {
    int32_t slot = 0;
    int64_t position = 0;  // of the token behind which the state stands
  };

  const Options options_;
  std::unique_ptr<Backend> heads_;
  std::unordered_map<uint64_t, Kept> kept_;  // by Sequence::order; those of the last step
  std::vector<HiddenKeep> keeps_;            // reused, as what follows
  std::vector<HiddenRef> hidden_;
  std::vector<ProposeJob> jobs_;
};

}  // namespace pf
