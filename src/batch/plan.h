#pragma once

#include <cstdint>
#include <vector>

#include "batch/sequence.h"

namespace pf {

// A draft plane that lags by no more tokens than this is fed by the proposal itself; a longer lag
// (a prompt, a prefix hit, a preemption, a long pause in drafting) is chunked work of its own.
inline constexpr int32_t kInlineCatchupTokens = 32;

// What a controller would like for one running sequence.
struct Wish {
  int32_t n_draft = 0;  // nodes wanted if the sequence decodes in this step
  // Tokens that its drafter must run before it can draft, the root included; 0: it keeps no KV.
  int64_t draft_lag = 0;
};

struct PlannedSequence {
  Sequence* sequence = nullptr;
  int32_t n_rows = 0;           // pending tokens that the target runs: [kv_len, kv_len + n_rows)
  int32_t n_draft = 0;          // nodes that may follow; > 0 only when every pending token runs
  int32_t n_draft_catchup = 0;  // committed tokens that the draft plane runs besides
  bool wants_logits = false;    // the last pending token is among the rows
};

// Who runs in this step and how much. KV slots for all of it are reserved.
struct Plan {
  std::vector<PlannedSequence> sequences;
  std::vector<Sequence*> preempted;  // gave their blocks back and wait again
  int32_t n_rows = 0;  // rows of the target, drafts included; <= max_num_batched_tokens

  void clear() {
    sequences.clear();
    preempted.clear();
    n_rows = 0;
  }
};

}  // namespace pf
