#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "speculation/drafter.h"

namespace pf {

// A resident draft model with a KV plane of its own over the target's block tables. What is
// committed and not yet in its plane is fed first, then one token (or tree level) at a time.
class ModelDrafter final : public Drafter {
 public:
  // max_context: of the draft model's own training, which may be shorter than the target's.
  ModelDrafter(std::string name, std::unique_ptr<Backend> model, int32_t plane, int64_t max_context)
      : name_(std::move(name)),
        model_(std::move(model)),
        plane_(plane),
        max_context_(max_context) {}

  const std::string& name() const override { return name_; }
  int32_t plane() const override { return plane_; }
  int64_t max_context() const override { return max_context_; }
  int32_t match_length(const Sequence& sequence) override {
    return static_cast<int32_t>(sequence.n_tokens());
  }
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  int64_t filled_after(const DraftTree& tree, std::span<const int32_t> path,
                       int64_t n_tokens) const override;
  void copy_blocks(std::span<const BlockCopy> copies) override { model_->copy_blocks(copies); }
  void forget(const Sequence&) override {}

  Backend& backend() { return *model_; }

 private:
  const std::string name_;
  std::unique_ptr<Backend> model_;
  const int32_t plane_;
  const int64_t max_context_;
  std::vector<ProposeJob> jobs_;  // reused
};

}  // namespace pf
