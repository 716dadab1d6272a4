#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "batch/sequence.h"
#include "kv/kv_cache.h"
#include "sampling/draft_tree.h"
#include "speculation/draft_vocabulary.h"

namespace pf {

// The texts of a draft model that cannot use the target's block tables: its tokens are others, its
// context is shorter than the text, or its memory is elsewhere. Each sequence has a window of its
// own: the first tokens of the text (all attention leans on them: Xiao et al. 2024, "StreamingLLM")
// and the recent ones, as the draft's tokens at positions 0, 1, 2, ... in private blocks. A window
// that is full, or finds no more blocks, drops its middle, and what moved is computed again.
//
// Positions count from the window's beginning, so the K and V of a block follow from the window's
// tokens up to the block's end, and from nothing else. Exactly where these are the same, and the
// cache_salt is, windows share the block, also with windows that are gone: texts with a common
// beginning do until one of them moves on; behind that only windows that hold the same recent
// tokens. A full block is never written again, so a window that moves on goes on in other blocks.
//
// What a draft was given is a function of the committed tokens and of the blocks at hand; never of
// what is drawn behind them. So its q is an honest one.
class DraftWindows {
 public:
  struct Options {
    int64_t n_tokens = 0;  // of a window; >= kLeastTokens, <= the draft's context
    // The blocks of the windows: ids [first_block, first_block + n_blocks) of the draft's plane.
    BlockId first_block = 0;
    int32_t n_blocks = 0, block_tokens = 16;
    bool prefix_caching = true;  // false: no window shares blocks
  };
  static constexpr int64_t kLeastTokens = 16;
  static constexpr int64_t kFirstTokens = 4;  // that stay when a window moves on

  // `vocabulary` outlives this; empty: the draft's tokens are the target's.
  DraftWindows(const Options& options, const DraftVocabulary* vocabulary);

  // Takes in what was committed since the last time. False: nothing can be drafted, for want of
  // blocks or of a token that the draft knows.
  bool follow(const Sequence& sequence);
  // Tokens of the window that have no K and V yet; at least 1: the root is always fed.
  // Requires: follow() has said yes to the sequence as it is.
  int64_t lag(const Sequence& sequence) const;

  // The proposal that is due. `committed` are the draft's tokens at slots [base, base + size).
  struct Job {
    std::span<const int32_t> committed;
    int64_t base = 0;
    std::span<const BlockId> blocks;
    int32_t n_draft = 0;  // that fit, of those that were wanted
    int64_t offset = 0;   // position in the text - position in the window, behind `committed`
  };
  Job job(const Sequence& sequence, int32_t n_draft) const;
  Job catchup(const Sequence& sequence, int32_t n_tokens) const;

  // What a job has written: its committed tokens and, behind them, the nodes of `tree` that were
  // fed, where they lie as a text does.
  void note(const Sequence& sequence, const Job& job, const DraftTree& tree);
  // Of the proposal `tree`, which branches, `path` is kept: moves it behind the tokens of the
  // window that was proposed for, where the next job finds it.
  void settle(const Sequence& sequence, const DraftTree& tree, std::span<const int32_t> path,
              std::vector<SlotMove>* moves);

  // A proposal behind the proposal `tree`, a chain whose nodes are all to be kept: one node more
  // that stands for the target's own token, then n_draft. `last` is the slot's token that is fed
  // first. n_draft of the result: 0 when the window has no room.
  Job job_ahead(const Sequence& sequence, const DraftTree& tree, int32_t n_draft,
                std::span<const int32_t> last) const;
  // What was fed behind the committed tokens, all of it, as tokens of the target.
  void note_ahead(const Sequence& sequence, std::span<const int32_t> tokens);

  void forget(const Sequence& sequence);

  int32_t n_blocks_in_use() const { return kv_.n_in_use(); }
  // Dies when a block is lost or counted twice.
  void check_integrity() const;

 private:
  struct Window {
    std::vector<int32_t> tokens;  // the draft's, by slot
    std::vector<int32_t> ahead;   // fed behind them, not committed
    int64_t n_read = 0;           // tokens of the sequence that were taken in
    int64_t filled = 0;           // leading tokens with K and V; < tokens.size()
    BlockTable table;             // filled: the leading tokens that may be shared
    std::vector<BlockId> blocks;  // those of the table, as the plane names them
    bool caught_up = false;       // since it began or moved on
    uint64_t used = 0;            // when it was last followed
    uint32_t n_followed = 0;
  };

  Window& at(const Sequence& sequence) { return windows_.at(sequence.order); }
  const Window& at(const Sequence& sequence) const { return windows_.at(sequence.order); }
  std::span<const int32_t> fed_for(int32_t token) const;
  int32_t own(int32_t token) const;  // of one that the draft itself has said
  void begin(const Sequence& sequence, Window* w) const;
  void append(std::span<const int32_t> tokens, Window* w) const;
  void move_on(int64_t limit, Window* w) const;
  bool make_room(const Sequence& sequence, Window* w);
  void take_blocks(Window* w, int64_t n_slots);
  void look_again(const Sequence& sequence, Window* w);
  void share(const Sequence& sequence, Window* w);
  void name_blocks(Window* w) const;
  void give_back(Window* w);
  bool take_from_idle();
  int64_t limit(const Window& w) const;  // slots that it may use
  static int64_t room(int64_t limit);    // that is kept behind the tokens

  const Options options_;
  const DraftVocabulary* vocabulary_;
  KvCache kv_;                                    // ids from 0; one plane
  std::unordered_map<uint64_t, Window> windows_;  // by Sequence::order
  uint64_t now_ = 0;                              // follow() calls
};

}  // namespace pf
