#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/draft_levels.h"
#include "speculation/draft_windows.h"
#include "speculation/drafter.h"

namespace pf {

// A resident draft model. While it can, it keeps K and V in a plane of its own over the target's
// block tables, and so shares what they share. Where it cannot (texts that are longer than the
// tables serve it, tokens that are others than the target's) it drafts from a window of the text in
// blocks of its own. What is committed and not yet fed is fed first, then one token (or tree level)
// at a time.
class ModelDrafter final : public Drafter {
 public:
  struct Options {
    std::string name;
    int32_t plane = -1;       // of the target's block tables; -1: windows only
    int64_t max_context = 0;  // of the tables' texts, in tokens; longer ones need windows
    // Ids from here on are padding of the target's that the draft does not have; 0: it has all.
    int32_t n_known = 0;
    DraftWindows::Options windows = {};  // n_tokens 0: none
    DraftVocabulary vocabulary = {};     // empty: the target's ids; else windows only
    int32_t max_rows = 0;                // of a pass; with a vocabulary only
    bool overlaps = false;               // drafts one step ahead while the target computes
  };
  ModelDrafter(Options options, std::unique_ptr<Backend> model);

  const std::string& name() const override { return options_.name; }
  int32_t plane() const override { return options_.plane; }
  bool uses_plane(int64_t n_tokens) const override;
  int64_t max_context() const override { return windows_ ? INT64_MAX : options_.max_context; }
  int32_t match_length(const Sequence& sequence) override;
  int64_t lag(const Sequence& sequence) const override;
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  void prepare() override;
  void settle(std::span<JudgedDraft> drafts) override;
  void copy_blocks(std::span<const BlockCopy> copies) override {
    if (options_.plane >= 0) model_->copy_blocks(copies);
  }
  void forget(const Sequence& sequence) override {
    if (windows_) windows_->forget(sequence);
    ahead_.erase(sequence.order);
  }

  Backend& backend() { return *model_; }
  const Options& options() const { return options_; }
  // Shorter texts stand in its plane as they are; 0: none does.
  int64_t plane_context() const {
    bool as_they_are = options_.plane >= 0 && options_.n_known == 0 && options_.vocabulary.empty();
    return as_they_are ? options_.max_context - (windows_ ? kMaxTreeNodes : 0) : 0;
  }
  // Tokens that a text in blocks 0, 1, 2, ... of the model may have.
  int64_t room_tokens() const;
  const DraftWindows* windows() const { return windows_.get(); }
  int64_t n_ahead_used() const { return n_ahead_used_; }  // proposals that were ready

 private:
  // One sequence's next proposal, made before it was known whether the present one is kept.
  struct Ahead {
    const Sequence* sequence = nullptr;
    DraftTree proposed;  // the present proposal, a chain
    int32_t n_draft = 0;
    AcceptPolicy policy;
    SamplingParams params;
    std::vector<int32_t> expected;  // by the target behind the text that it was made for
    int64_t n_tokens = 0;           // of that text
    DraftTree next;                 // behind what is expected; empty: none
  };

  void propose_jobs(std::span<DraftTree> trees);
  void remember(const DraftTask& task, const DraftTree& tree);
  void note_ahead(int pass, DraftTree& grown, Ahead* a);
  bool take_ahead(const DraftTask& task, const DraftWindows::Job& due, DraftTree* tree);
  ProposeJob job_ahead(const Ahead& a, int32_t n_draft, std::span<const int32_t> last);
  ProposeJob job_in_plane(const DraftTask& task);
  ProposeJob job_in_window(const DraftTask& task, DraftWindows::Job* window);
  void stand_in();
  DraftLevels::Device translated_device();
  void list_translated(std::span<const int32_t> rows, std::span<std::vector<TokenProbability>> out);

  Options options_;
  std::unique_ptr<Backend> model_;
  std::unique_ptr<DraftWindows> windows_;  // null: none
  std::vector<int32_t> said_;              // draft tokens with a partner, in the partners' order
  std::vector<int32_t> said_as_;           // their partners
  DraftLevels levels_;                     // of a draft with a vocabulary of its own
  std::vector<ProposeJob> jobs_;           // reused, as what follows
  std::vector<DraftWindows::Job> window_jobs_;  // by task; those in the plane stay empty
  std::vector<int32_t> tokens_;                 // with stand-ins
  std::vector<float> logits_, said_logits_;
  std::vector<size_t> job_tasks_;  // by job
  std::vector<DraftTree> job_trees_;
  std::unordered_map<uint64_t, Ahead> ahead_;  // by Sequence::order
  std::vector<Ahead*> preparing_;              // of this step
  std::vector<int32_t> tokens_ahead_;
  std::vector<SlotMove> moves_;
  int64_t n_ahead_used_ = 0;
};

}  // namespace pf
