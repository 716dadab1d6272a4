#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "speculation/drafter.h"

namespace pf {

// Where n-grams of one growing text were last continued. Appending and looking up cost O(kMaxN) per
// token, whatever the length of the text (Saxena, "Prompt Lookup Decoding", 2023, with an index).
class NgramIndex {
 public:
  static constexpr int32_t kMaxN = 4;

  // Takes in tokens that were not seen yet; `tokens` extends what was given before.
  void update(std::span<const int32_t> tokens);

  struct Match {
    int32_t length = 0;  // tokens that agree; 0: none
    int64_t next = 0;    // position of the token that followed there
  };
  // The latest earlier place that agrees with the longest ending of `tokens`. Requires: updated.
  Match find(std::span<const int32_t> tokens) const;

 private:
  static uint64_t key(std::span<const int32_t> ngram);

  int64_t n_seen_ = 0;                          // tokens whose n-grams are in the map
  std::unordered_map<uint64_t, int64_t> last_;  // n-gram -> position behind its last occurrence
};

// Copies what followed the last time that the text ended like now. Deterministic: one-hot q.
class NgramDrafter final : public Drafter {
 public:
  // Matches shorter than min_match tokens are not used.
  explicit NgramDrafter(int32_t min_match) : min_match_(min_match) {}

  const std::string& name() const override { return name_; }
  int32_t match_length(const Sequence& sequence) override;
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  int64_t filled_after(const DraftTree&, std::span<const int32_t>, int64_t) const override {
    return 0;  // no plane
  }
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence& sequence) override { indexes_.erase(sequence.order); }

 private:
  NgramIndex::Match match(const Sequence& sequence);

  const std::string name_ = "ngram";
  const int32_t min_match_;
  std::unordered_map<uint64_t, NgramIndex> indexes_;  // by Sequence::order
};

}  // namespace pf
