#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "speculation/drafter.h"

namespace pf {

// What the target was seen to say behind a token, the latest first. Bounded: the token that came in
// first leaves first.
class GramPool {
 public:
  static constexpr size_t kTail = 2;     // tokens behind the key
  static constexpr size_t kPerKey = 4;   // tails of one key
  static constexpr size_t kKeys = 1024;  // of one sequence
  using Tail = std::array<int32_t, kTail>;

  void add(int32_t key, const Tail& tail);
  std::span<const Tail> find(int32_t key) const;
  size_t n_keys() const { return tails_.size(); }

 private:
  struct Tails {
    std::array<Tail, kPerKey> list;
    size_t n = 0;
  };
  std::unordered_map<int32_t, Tails> tails_;
  std::deque<int32_t> order_;  // of the keys
};

// Drafts without a draft model (Fu et al., "Lookahead Decoding", 2024): the target's own pass also
// runs guesses of the tokens to come, as Jacobi iteration does, and what it says behind them feeds
// a pool of n-grams, from which later rounds are drafted. Guesses and n-grams are branches of one
// tree of at most 64 nodes, so each row sees its own ancestors and no other guess; and a guess that
// turns out right is kept like any draft.
//
// The window has columns 1, 2, ... behind the last token. Column c holds two guesses, for positions
// c and c + 1: the first ones of all columns are a chain, the second one of column c branches off
// at its first. What the target says behind the second one gives the n-gram (first, second, said);
// then the second becomes the first and what was said the second, one position further on.
// Deterministic: one-hot q. What a node holds was known before the round.
class LookaheadDrafter final : public Drafter {
 public:
  static constexpr int32_t kColumns = 8;

  const std::string& name() const override { return name_; }
  std::span<const int32_t> own_shape() const override { return kShape; }
  int32_t match_length(const Sequence& sequence) override {
    return static_cast<int32_t>(sequence.n_tokens());
  }
  void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) override;
  uint64_t watched(const Sequence& sequence) const override;
  void see(const Sequence& sequence, std::span<const int32_t> argmax, int64_t n_new) override;
  void copy_blocks(std::span<const BlockCopy>) override {}
  void forget(const Sequence& sequence) override { minds_.erase(sequence.order); }

 private:
  // Asked for are rows, four more with each level; how deep they go is its own business.
  static constexpr std::array<int32_t, 4> kShape = {4, 1, 1, 1};
  using Level = std::array<int32_t, kColumns>;
  struct Mind {  // of one sequence
    GramPool pool;
    Level first{}, second{};  // the window's guesses
    bool begun = false;
    // Of the last proposal: columns in it, and the node of each one's second guess.
    int32_t n_columns = 0;
    Level second_node{};
  };
  // A tree while it grows, in any order of levels.
  struct Branches {
    std::vector<int32_t> tokens, parents, depths;
    int32_t room = 0, deepest = 0;
    // The child of `parent` that says `token`, made when there is none; -2: there is no room.
    int32_t child(int32_t parent, int32_t token);
  };

  void begin(const Sequence& sequence, Mind* mind) const;
  void add_grams(const Mind& mind, int32_t last, Branches* tree) const;
  void add_window(Mind* mind, Branches* tree) const;
  void write(const Branches& from, Mind* mind, DraftTree* tree);

  const std::string name_ = "lookahead";
  std::unordered_map<uint64_t, Mind> minds_;  // by Sequence::order
  Branches branches_;                         // reused
  std::vector<int32_t> place_;                // reused: by branch node, its node
};

}  // namespace pf
