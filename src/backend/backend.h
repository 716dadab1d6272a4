#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/hidden.h"
#include "base/view.h"
#include "batch/batch.h"
#include "sampling/accept.h"

namespace pf {

struct BackendInfo {
  std::string device;           // "cpu (avx512)", "NVIDIA A100..."
  std::string dtype;            // of the weights: "bf16", "int4", ...
  int64_t vocabulary_size = 0;  // V: width of the logits as sampling sees them
  int64_t max_context = 0;
  int64_t weight_bytes = 0, kv_bytes = 0, scratch_bytes = 0;
  int64_t bytes_per_step = 0;  // weight bytes that one decode step reads
  std::string kv_dtype;        // of keys and values: "bf16", "int8", ...
};

// The rows of one sequence in the last forward pass, to be judged by the accept rule.
struct AcceptJob {
  int32_t segment = 0;  // of that batch; its logit rows are 1 + nodes (the last plain row first)
  AcceptInput input;    // `logits` is filled in by the backend
};

// One row whose next token is known (prompt log-probabilities).
struct ScoreJob {
  int32_t logit_row = 0;  // index into batch.logit_rows
  int32_t token = 0;
  int32_t n_top = 0;
};

// A draft for one sequence: first its catch-up rows, then one token at a time (a chain) or one
// level at a time (widths, or a tree that grows: sampling/grown_tree.h).
struct ProposeJob {
  std::span<const int32_t>
      committed;  // catch-up tokens at positions [base, ...); the last one is the root
  int64_t base = 0;
  // Position in the text less that in this model's slots, where it sees a window of the text: the
  // noise of a token belongs to its place in the text.
  int64_t offset = 0;
  // [committed]: where the target's hidden state of the token before each lies. Only for a head
  // over hidden states; empty else. Its rows begin at slot 1, where the second token is fed.
  std::span<const HiddenRef> hidden;
  std::span<const BlockId> blocks;         // slots for catch-up and nodes are reserved
  int32_t n_draft = 0;                     // nodes wanted; 0: only catch up
  std::span<const int32_t> widths;         // of a tree; empty: a chain of n_draft, or
  int32_t grown_levels = 0;                // > 0: a tree of n_draft nodes that grows so deep
  AcceptPolicy policy;                     // coupled: rank by log q + gumbel; else draw from q
  const SamplingParams* params = nullptr;  // the draft's (its temperature may differ)
  const StopParams* stop = nullptr;
  NoiseKey key;
  int32_t n_generated = 0;
  TokenCounts* counts = nullptr;  // restored on return

  bool is_chain() const { return widths.empty() && grown_levels == 0; }
  // As deep as the draft may get.
  int32_t n_levels() const {
    return grown_levels > 0 ? grown_levels
           : widths.empty() ? n_draft
                            : static_cast<int32_t>(widths.size());
  }
};

// A move of K and V between logical slots of one sequence (a tree's accepted path to the front).
struct SlotMove {
  std::span<const BlockId> blocks;  // of the sequence: those of its last forward or proposal
  int32_t from = 0, to = 0;
};

// A loaded model on a device, with its KV plane. One thread calls it. Everything it needs is
// allocated when it is made; a call allocates nothing that lasts. Device errors end the process.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const BackendInfo& info() const = 0;

  // Runs the rows through all layers: K and V are written, hidden states of logit rows are kept
  // until the next forward. Requires: T <= max_rows, R <= max_rows, positions < max_context.
  virtual void forward(const Batch& batch) = 0;

  // Head and accept rule over the last forward, in chunks of rows; results in the jobs' order.
  virtual void accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) = 0;

  // Log-probabilities of known tokens; results in the jobs' order.
  virtual void score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) = 0;

  // Raw logits [n, V] of logit rows [first, first + n) of the last forward, on the host; -inf for
  // tokens that a reduced head lacks.
  virtual void read_logits(int32_t first, int32_t n, View<float, 2> out) = 0;

  // The hidden states of all rows of the last forward. Requires: made to keep them.
  virtual HiddenStates hidden_states() const = 0;
  // For a head over its target's hidden states: they are kept beside the blocks of its KV plane,
  // one for each, and copied with them.
  virtual void keep_hidden(std::span<const HiddenKeep> keeps) = 0;

  // Drafts for several sequences at once; trees in the jobs' order (cleared first). The jobs' own
  // K and V are written to this backend's plane.
  virtual void propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) = 0;

  // The same with the first n layers, the norm and the head only. What this writes of K and V, the
  // forward that follows over the same rows writes again, bit by bit. Requires: 1 <= n_layers.
  virtual void propose_early(int32_t n_layers, std::span<const ProposeJob> jobs,
                             std::span<DraftTree> trees) = 0;

  virtual void copy_blocks(std::span<const BlockCopy> copies) = 0;
  // The moves of one sequence follow each other, and happen in their order.
  virtual void move_slots(std::span<const SlotMove> moves) = 0;
};

}  // namespace pf
