#pragma once

#include <memory>

#include "base/progress.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "engine/step.h"

namespace pf {

// An engine that is loaded and not yet running.
struct EngineParts {
  EngineInfo info;
  StepParts step;
  std::unique_ptr<ThreadPool> pool;
  int32_t max_queue = 256;
};

// Opens the models, checks that they fit, takes all memory. Errors say what, where and what to do.
// `progress`, which outlives this: bytes of the files that are gone through, drafts included; the
// target's twice, since every weight is looked at before it is packed. Once loading is done, all
// that was expected is done.
Result<EngineParts> load_engine(const EngineOptions& options, Progress* progress = nullptr);

// The memory plan that load_engine would follow; takes none of it. A plan that does not fit is an
// answer, not an error.
Result<MemoryFigures> plan_engine(const EngineOptions& options);

}  // namespace pf
