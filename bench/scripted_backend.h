#pragma once

#include <functional>
#include <span>

#include "backend/backend.h"

namespace pf {

// A device that takes no time: forward does nothing, and the target always goes on counting, token
// = position mod 16. Of a drafted chain the tokens that it would say itself are kept, n_kept at
// most. What a step costs beside it is the host's own work.
class ScriptedBackend final : public Backend {
 public:
  explicit ScriptedBackend(int64_t max_context) {
    info_.device = "scripted";
    info_.dtype = "none";
    info_.vocabulary_size = 256;
    info_.max_context = max_context;
  }
  static int32_t token_at(int64_t position) { return static_cast<int32_t>(position % 16); }

  const BackendInfo& info() const override { return info_; }
  void forward(const Batch& batch) override {
    if (on_forward) on_forward(batch.n_rows());
  }
  void accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) override {
    for (size_t j = 0; j < jobs.size(); ++j) {
      const AcceptInput& in = jobs[j].input;
      AcceptResult& out = results[j];
      int32_t kept = 0;
      while (kept < std::min(in.tree->size(), n_kept) &&
             in.tree->tokens[static_cast<size_t>(kept)] == token_at(in.position + kept))
        ++kept;
      int32_t n = std::min(kept + 1, in.max_tokens);
      out.tokens.clear();  // what was reserved stays, as in pf::accept
      out.origins.clear();
      out.path.clear();
      for (int32_t i = 0; i < n; ++i) {
        bool drafted = i < kept;
        out.tokens.push_back(token_at(in.position + i));
        out.origins.push_back(drafted ? Origin::kDraft : Origin::kBonus);
        if (drafted) out.path.push_back(i);
      }
      out.n_accepted = static_cast<int32_t>(out.path.size());
    }
  }
  void score(std::span<const ScoreJob>, std::span<TokenLogprob>) override {}
  void read_logits(int32_t, int32_t, View<float, 2>) override {}
  HiddenStates hidden_states() const override { return {}; }
  void keep_hidden(std::span<const HiddenKeep>) override {}
  void propose(std::span<const ProposeJob>, std::span<DraftTree>) override {}
  void propose_early(int32_t, std::span<const ProposeJob>, std::span<DraftTree>) override {}
  void copy_blocks(std::span<const BlockCopy> copies) override {
    n_copied_blocks += static_cast<int64_t>(copies.size());
  }
  void move_slots(std::span<const SlotMove> moves) override {
    n_moved_slots += static_cast<int64_t>(moves.size());
  }

  std::function<void(int32_t n_rows)> on_forward;  // may be empty
  int32_t n_kept = kMaxTreeNodes;
  int64_t n_copied_blocks = 0, n_moved_slots = 0;

 private:
  BackendInfo info_;
};

}  // namespace pf
