#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "batch/draft_history.h"
#include "batch/request.h"
#include "kv/kv_cache.h"
#include "sampling/token_counts.h"

namespace pf {

// One completion on its way. Owned by the engine; the scheduler reads it and sets its place.
// Invariant: kv_len <= tokens.size() - 1 while it runs, equal once the prompt is done.
struct Sequence {
  enum class State : uint8_t { kWaiting, kRunning, kFinished };

  const Request* request = nullptr;
  int32_t index = 0;   // which of n
  uint64_t order = 0;  // admission number: who came first
  State state = State::kWaiting;
  FinishReason finish = FinishReason::kNone;

  std::vector<int32_t> tokens;  // committed: prompt, then output
  BlockTable table;
  int64_t kv_len = 0;                   // == table.filled[kTargetPlane]
  int64_t n_cached_tokens = 0;          // prefix hit at the first admission
  bool waits_for_leader = false;        // n > 1: forks when sibling 0 has its prompt's KV
  std::unique_ptr<TokenCounts> counts;  // null without penalties

  int32_t drafter = -1;              // who drafts in this step; set by the engine
  int32_t draft_match = 0;           // what its proposal would rest on (Drafter::match_length)
  std::vector<DraftHistory> drafts;  // by drafter index
  TextEase ease;                     // written by speculation/, but for `counts`
  int64_t target_high = 0;           // most tokens that ever stood in its plane
  std::vector<int64_t> draft_high;   // likewise, by plane

  double loss_spent = 0;  // probability mass kept beyond the exact rule
  int32_t n_preemptions = 0;
  int64_t first_scheduled_us = -1, first_token_us = -1;

  int64_t n_prompt() const { return static_cast<int64_t>(request->prompt.size()); }
  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t n_generated() const { return n_tokens() - n_prompt(); }
  int64_t n_pending() const {
    return n_tokens() - kv_len;
  }  // committed tokens not in the target's KV
  bool decoding() const { return n_pending() == 1 && n_generated() > 0; }
};

}  // namespace pf
