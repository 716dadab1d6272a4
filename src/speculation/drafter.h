#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "batch/draft_shape.h"
#include "batch/sequence.h"
#include "sampling/draft_tree.h"

namespace pf {

// One sequence that this drafter serves in this step.
struct DraftTask {
  const Sequence* sequence = nullptr;
  int32_t n_draft = 0;    // nodes allowed; 0: only catch up
  int32_t n_catchup = 0;  // with n_draft == 0: committed tokens to run in the draft plane
  DraftShape shape = {};
  AcceptPolicy policy;
  const SamplingParams* params = nullptr;  // the draft's: temperature may differ from the request's
  int32_t deepest = kMaxTreeNodes;         // levels that request and contexts allow

  // Levels that n_draft nodes of this shape have; one that is begun counts. Whoever proposes a
  // chain where a tree was asked for goes no deeper: positions behind that may be beyond the
  // context.
  int32_t depth() const { return shape.depth(n_draft); }
};

// What the target has computed for one sequence in this step, once its tokens are committed.
struct AbsorbTask {
  const Sequence* sequence = nullptr;
  int64_t first = 0;              // position of the first row
  std::span<const int32_t> rows;  // of the target's last forward, position by position
  int64_t filled = 0;             // of the drafter's plane, before and (set by it) after
};

// A round that a drafter has proposed for, once it is judged. A tree's node of place i lies behind
// the committed tokens, in logical slot n_tokens + i (DraftTree::place_in_draft).
struct JudgedDraft {
  const Sequence* sequence = nullptr;
  const DraftTree* tree = nullptr;
  std::span<const int32_t> path;  // accepted nodes, each the parent of the next
  int64_t n_tokens = 0;           // committed before the round
  // Set by the drafter: so many leading tokens have K and V in its plane, the path's included.
  int64_t filled = 0;
};

// Proposes tokens. One drafter serves all sequences of a step in one call; the engine thread owns
// it. A tree's q obeys the rule of sampling/draft_tree.h.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual const std::string& name() const = 0;
  // The KV plane that it fills; -1: none.
  virtual int32_t plane() const { return -1; }
  // Whether K and V of a text of so many tokens are there; else it keeps them by itself, if any.
  virtual bool uses_plane(int64_t) const { return plane() >= 0; }
  // Tokens that it must run before it can draft for a decoding sequence, in its own counting; 0: it
  // keeps no K and V that anybody would have to fill. Requires: match_length > 0.
  virtual int64_t lag(const Sequence&) const { return 0; }
  // Positions that it can draft for lie below this.
  virtual int64_t max_context() const { return INT64_MAX; }
  // Levels that it can draft at most.
  virtual int32_t max_depth() const { return kMaxTreeNodes; }
  // The request has brought what this drafter lives on: it may serve whatever drafters it names.
  virtual bool asked_for(const Sequence&) const { return false; }
  // How many of the last committed tokens its proposal would rest on now (an n-gram's length);
  // 0: it has nothing to say. Cheap. A model always has something to say.
  virtual int32_t match_length(const Sequence& sequence) = 0;
  // Trees in the tasks' order, cleared first; a tree may be smaller than allowed, or empty.
  virtual void propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) = 0;
  // Called while the target computes on what was proposed: what will likely be asked next may be
  // worked out now. It changes no proposal, only when it is made.
  virtual void prepare() {}
  // Moves the accepted paths' K and V to the front of its plane, as the target's are in its own,
  // and says how far it is filled. Called once the step is judged, before its blocks can be shared.
  virtual void settle(std::span<JudgedDraft>) {}
  // Whether it lives on what the target computes: then `absorb` is called in every step, with all
  // sequences that had rows, before their blocks can be shared; and its plane needs no catch-up.
  virtual bool absorbs() const { return false; }
  virtual void absorb(std::span<AbsorbTask>) {}
  // The drafter whose tokens it filters, if any, and how far that one's plane is filled for a
  // sequence whose round has just been settled.
  virtual Drafter* inner() { return nullptr; }
  virtual int64_t filled_inside(const Sequence&) const { return 0; }
  // Widths of the tree that it draws by itself, where the request fixes none; empty: as asked.
  virtual std::span<const int32_t> own_shape() const { return {}; }
  // Nodes of its last proposal behind which it wants to know the target's likeliest token, a bit
  // each; `see` is told them once the round's n_new tokens are committed, by node (-1: not known).
  virtual uint64_t watched(const Sequence&) const { return 0; }
  virtual void see(const Sequence&, std::span<const int32_t> /*argmax*/, int64_t /*n_new*/) {}
  // The first blocks' K and V appear in the second ones, in its plane too.
  virtual void copy_blocks(std::span<const BlockCopy> copies) = 0;
  // The sequence is over.
  virtual void forget(const Sequence& sequence) = 0;
};

}  // namespace pf
