#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "kv/kv_cache.h"
#include "scheduler/scheduler.h"
#include "speculation/alpha_control.h"
#include "speculation/draft_length.h"
#include "speculation/drafter_choice.h"
#include "speculation/measured_choice.h"

namespace pf {

// What the step is made of. Loaded by engine/load.cc, or put together by a test.
struct StepParts {
  KvCache::Options kv;
  SchedulerOptions scheduler;
  std::unique_ptr<Backend> target;
  DrafterChoice drafters;
  int64_t max_context = 0;
  // The server's choice where a request has none, as `length` uses it: exactly or at most so many;
  // 0: off.
  int32_t num_speculative_tokens = 0;
  DraftLengthOptions length;  // cost_ratios: by drafter, or empty
  AlphaOptions alpha;
  // How busy the device is, in percent, by somebody who knows; nothing: by the rows of the step.
  std::function<std::optional<double>(int64_t now_us)> utilisation;
  bool dynamic_alpha = false;             // for threshold rules without an alpha of their own
  std::vector<int32_t> speculation_tree;  // widths; empty: chains, or
  int32_t speculation_tree_nodes = 0;     // > 0: trees of at most so many nodes that grow by gain
  float draft_temperature = -1;           // < 0: the request's
  bool has_policy = false;                // `policy` instead of auto
  AcceptPolicy policy;
};

}  // namespace pf
