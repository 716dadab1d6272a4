#pragma once

#include "backend/backend.h"
#include "speculation/drafter.h"

namespace pf {

// What a backend needs to draft for one sequence. Its plane is filled up to `base`; the committed
// tokens from there on are fed first, the last of them is the root.
inline ProposeJob propose_job(const DraftTask& task, int64_t base) {
  const Sequence& s = *task.sequence;
  ProposeJob job;
  job.committed = std::span(s.tokens).subspan(static_cast<size_t>(base));
  job.base = base;
  job.blocks = s.table.blocks;
  job.n_draft = task.n_draft;
  job.widths = task.shape.widths;
  if (task.n_draft > 0 && task.shape.grows()) job.grown_levels = task.depth();
  job.policy = task.policy;
  job.params = task.params;
  job.stop = &s.request->stop;
  job.key = {s.request->seed, static_cast<uint32_t>(s.index)};
  job.n_generated = static_cast<int32_t>(s.n_generated());
  job.counts = s.counts.get();
  return job;
}

}  // namespace pf
