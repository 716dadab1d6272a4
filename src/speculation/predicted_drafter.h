#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "speculation/drafter.h"

namespace pf {

// Where an output stands in the text that was predicted for it. While the two agree the place moves
// along; after a token that was not predicted it is found again as soon as the output ends like
// some place of the prediction:
//   1. two tokens or more agree: the longest agreement (up to kLongest tokens), among equals the
//      place nearest to where the output would stand had tokens only been replaced;
//   2. else one token agrees with a place at most kNear behind that where they parted: the nearest.
// A step costs a few dozen comparisons, whatever the length of the text.
class Alignment {
 public:
  static constexpr int64_t kLost = -1;
  static constexpr int64_t kLongest = 16, kNear = 16;
  static constexpr int64_t kCandidates = 16;  // places looked at on each side of the expected one

  explicit Alignment(std::span<const int32_t> predicted);

  // Takes in output tokens that were not seen yet; `output` extends what was given before.
  // `predicted` as in the constructor.
  void update(std::span<const int32_t> predicted, std::span<const int32_t> output);

  // The predicted token that should come next, or kLost; predicted.size() when all of it was said.
  int64_t next() const { return next_; }
  // How many tokens before the place agree (at least 1 once there is an output).
  int32_t n_agreed() const { return n_agreed_; }

 private:
  void find(std::span<const int32_t> predicted, std::span<const int32_t> output);

  std::unordered_map<uint64_t, std::vector<int32_t>>
      places_;  // pair -> positions behind it, rising
  int64_t next_ = 0;
  int64_t expected_ = 0;   // where the next token would stand if those before had been replaced
  int64_t parted_at_ = 0;  // the last place that agreed
  int32_t n_agreed_ = 0;
  int64_t n_seen_ = 0;  // output tokens
};

// Drafts the caller's own guess (`predicted_text`) from the place that the output has reached in
// it. Deterministic: one-hot q.
class PredictedDrafter final : public Drafter {
 public:
  const std::string& name() const override { return name_; }
  bool asked_for(const Sequence& sequence) const override {
    return !sequence.request->speculation.predicted.empty();
  }
  int32_t match_length(const Sequence& sequence) override;
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence& sequence) override { alignments_.erase(sequence.order); }

 private:
  const Alignment& align(const Sequence& sequence);

  const std::string name_ = "predicted";
  std::unordered_map<uint64_t, Alignment> alignments_;  // by Sequence::order
};

}  // namespace pf
