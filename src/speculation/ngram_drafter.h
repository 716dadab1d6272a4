#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "speculation/drafter.h"

namespace pf {

// Where n-grams of one growing text were last continued. Appending and looking up cost O(kMaxN) per
// token, whatever the length of the text (Saxena, "Prompt Lookup Decoding", 2023, with an index).
//
// One open table holds 8 bytes for an n-gram and is at most half full. An entry names the place
// where its n-gram stood last, and is told from others of the same hash by the tokens there, so
// nothing is ever mistaken. Of an n-gram that stood in one place alone, the tokens there say all
// about the longer ones that end in it: these enter when it comes again. So a token adds one or two
// entries in most texts, and never more than kMaxN on average: 128 bytes per token at most.
class NgramIndex {
 public:
  static constexpr int32_t kMaxN = 4;

  // Takes in tokens that were not seen yet; `tokens` extends what was given before and has less
  // than 2^31 tokens.
  void update(std::span<const int32_t> tokens);

  struct Match {
    int32_t length = 0;  // tokens that agree; 0: none
    int64_t next = 0;    // position of the token that followed there
  };
  // The latest earlier place that agrees with the longest ending of `tokens`. Requires: updated.
  Match find(std::span<const int32_t> tokens) const;

  int64_t table_bytes() const { return static_cast<int64_t>(entries_.size() * sizeof(Entry)); }

 private:
  struct Entry {
    uint32_t key = 0;        // of the n-gram's tokens; the lowest bits are its length - 1
    uint32_t next : 31 = 0;  // position behind its last occurrence; 0: the entry is free
    uint32_t alone : 1 = 0;  // which is the only one; longer n-grams that end there are not entered
  };
  // Hashes walk backwards from an n-gram's end, so that a longer one goes on from a shorter one.
  static uint64_t extend(uint64_t hash, int32_t token);
  static uint32_t key_of(uint64_t hash, int64_t length);
  size_t home(uint32_t key) const { return key >> shift_; }
  // The entry of the n-gram of `length` that ends before `end`, or the free one where it would be.
  size_t place(std::span<const int32_t> tokens, int64_t end, int64_t length, uint32_t key) const;
  void fetch(std::span<const int32_t> tokens, int64_t end) const;  // what enter will look at
  void enter(std::span<const int32_t> tokens, int64_t end);
  void take(Entry* entry, uint32_t key, int64_t end);
  void make_room(int64_t n_more);

  int64_t n_seen_ = 0;  // tokens whose n-grams are in the table
  int64_t n_taken_ = 0;
  int shift_ = 32;              // 32 - log2 of the entries
  std::vector<Entry> entries_;  // in the order of their keys but for collisions: growing is a sweep
};

// Copies what followed the last time that the text ended like now. Deterministic: one-hot q.
class NgramDrafter final : public Drafter {
 public:
  // Matches shorter than min_match tokens are not used.
  explicit NgramDrafter(int32_t min_match) : min_match_(min_match) {}

  const std::string& name() const override { return name_; }
  int32_t match_length(const Sequence& sequence) override;
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence& sequence) override { texts_.erase(sequence.order); }

 private:
  struct Text {
    NgramIndex index;
    int64_t n_matched = 0;  // tokens of the text when `last` was found
    NgramIndex::Match last;
  };
  const NgramIndex::Match& match(const Sequence& sequence);  // asked again, it is not sought again

  const std::string name_ = "ngram";
  const int32_t min_match_;
  std::unordered_map<uint64_t, Text> texts_;  // by Sequence::order
};

}  // namespace pf
