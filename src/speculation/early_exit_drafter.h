#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "speculation/drafter.h"

namespace pf {

// The target's own first layers, its norm and its head (self-speculation; Zhang et al. 2024,
// Elhoushi et al. 2024). It needs no weights and no plane: what its pass writes into the target's
// plane are the very bits that the target's own pass over the same rows writes again.
class EarlyExitDrafter final : public Drafter {
 public:
  // `target` outlives this. Requires: 1 <= n_layers < the target's.
  EarlyExitDrafter(Backend* target, int32_t n_layers) : target_(target), n_layers_(n_layers) {}

  const std::string& name() const override { return name_; }
  int32_t match_length(const Sequence& sequence) override {
    return static_cast<int32_t>(sequence.n_tokens());
  }
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence&) override {}

 private:
  const std::string name_ = "early-exit";
  Backend* target_;
  const int32_t n_layers_;
  std::vector<ProposeJob> jobs_;  // reused
};

}  // namespace pf
