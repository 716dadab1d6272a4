#pragma once

#include <string>
#include <vector>

#include "engine/memory_plan.h"

namespace pf {

// plan_memory without the advice: what is short, and by how much. RESOURCE_EXHAUSTED where memory
// or blocks are.
Result<MemoryPlan> lay_out_memory(const EngineOptions& options, const PlanDevice& device,
                                  std::vector<ResidentModel> residents);

// For options that lay_out_memory refuses: ": set --a to 1 or less, or --b to 2 or more", every
// flag that would make room alone, with the value nearest to the present one that does. Says so
// where none does.
std::string memory_cure(const EngineOptions& options, const PlanDevice& device,
                        const std::vector<ResidentModel>& residents);

}  // namespace pf
