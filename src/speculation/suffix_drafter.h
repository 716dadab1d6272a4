#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "speculation/drafter.h"
#include "speculation/suffix_index.h"

namespace pf {

// The latest tokens of a stream of texts: at least n_tokens of them, at most twice as many, since a
// full index makes room for an empty one and is kept until that is full.
class SuffixMemory {
 public:
  explicit SuffixMemory(int64_t n_tokens) : n_most_(n_tokens) {}
  void append(int32_t token);
  void end_text() { recent_.end_text(); }
  int64_t n_tokens() const { return recent_.n_tokens() + older_.n_tokens(); }
  const SuffixIndex& recent() const { return recent_; }
  const SuffixIndex& older() const { return older_; }

 private:
  const int64_t n_most_;
  SuffixIndex recent_, older_;
};

// Proposes what most often stood behind the longest ending of the text that stood before: in the
// text itself, or in recent outputs of other requests, which are shared only between equal
// cache_salts, as prefixes are. A tree takes the most frequent continuations as siblings.
// Deterministic: one-hot q. (Oliaro et al., "SuffixDecoding", 2024.)
class SuffixDrafter final : public Drafter {
 public:
  static constexpr int64_t kOwnTokens = 32'768;     // of one sequence's text, see SuffixMemory
  static constexpr int64_t kSharedTokens = 16'384;  // of the outputs under one salt
  static constexpr int64_t kAllShared =
      4 * kSharedTokens;                           // the salt unused for longest leaves first
  static constexpr int64_t kOutputTokens = 1024;   // the last of an output that is remembered
  static constexpr int64_t kTokensPerCall = 2048;  // a long prompt is taken in step by step

  // Matches shorter than min_match tokens are not used.
  explicit SuffixDrafter(int32_t min_match) : min_match_(min_match) {}

  const std::string& name() const override { return name_; }
  int32_t match_length(const Sequence& sequence) override;
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence& sequence) override;  // and remembers its output

  int64_t n_shared_tokens() const { return n_shared_; }

 private:
  struct Own {
    SuffixMemory text{kOwnTokens};
    int64_t n_seen = 0;
  };
  struct Shared {
    SuffixMemory outputs{kSharedTokens};
    uint64_t last_used = 0;
  };
  // Where the longest match stands: in the text itself, else in the most recent outputs.
  struct Match {
    const SuffixIndex* index = nullptr;
    int32_t length = 0;
  };

  Own& update(const Sequence& sequence);
  Match find(const Own& own, const Shared* shared, std::span<const int32_t> context) const;
  void grow(const DraftTask& task, const Own& own, const Shared* shared, DraftTree* tree);
  void make_room(const std::string& for_salt);

  const std::string name_ = "suffix";
  const int32_t min_match_;
  std::unordered_map<uint64_t, Own> own_;           // by Sequence::order
  std::unordered_map<std::string, Shared> shared_;  // by cache_salt
  int64_t n_shared_ = 0;                            // tokens in shared_
  uint64_t n_uses_ = 0;
  std::vector<int32_t> context_, followers_;  // reused
};

}  // namespace pf
