#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/status.h"

namespace pf {

// What the start-up test found.
struct SelfTestReport {
  std::string skipped;  // why nothing was run; empty: it ran
  struct Pass {
    int32_t n_rows = 0;
    double seconds = 0;
  };
  std::vector<Pass> target_passes;     // verify passes, head and accept rule included
  std::vector<double> draft_seconds;   // by draft model: one draft pass of one row
  double target_step_seconds() const;  // of one row; 0: not measured
};

struct SelfTestInput {
  Backend* target = nullptr;
  std::vector<Backend*> drafts;  // each with room for kDraftTokens tokens
  static constexpr int64_t kDraftTokens = 32;
  int32_t block_tokens = 0, n_blocks = 0;
  int32_t max_rows = 0;
  int64_t max_context = 0;
};

// Before the server is ready, on the machine that will serve and with the model that it serves: a
// draft that is what the target says is kept to the last token; a draft that is wrong is rolled
// back without a trace; a prefix in another sequence's block counts as one's own; and none of that
// changes in a batch of sequences of unequal length. A handful of tokens and passes, and a quarter
// of a second more to measure wider ones. INTERNAL says which of these failed. A pool, a context
// or a step too small for it is no failure: then nothing is run, and `skipped` says so. Writes K
// and V into the blocks; Requires: no sequence lives in them.
Result<SelfTestReport> self_test(const SelfTestInput& input, const Clock& clock);

}  // namespace pf
