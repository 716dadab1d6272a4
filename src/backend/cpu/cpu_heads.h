#pragma once

#include "backend/cpu/cpu_backend.h"

namespace pf {

// Medusa heads on the CPU, over states that their target keeps. They run no rows and have no plane:
// of a Backend they serve propose() and keep_hidden(), which keeps a state for each of `max_rows`
// slots. Jobs name the slot of their state in `hidden`.
Result<std::unique_ptr<Backend>> make_cpu_heads(const Model& model, const CpuOptions& options,
                                                ThreadPool& pool);
Footprint cpu_heads_footprint(const Model& model, const CpuOptions& options, int n_threads);

}  // namespace pf
