#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/device_model.h"
#include "engine/memory_plan.h"

namespace pf {

// What `plan` is asked beside the engine's own options.
struct PlanRequest {
  std::string device_model;   // empty: this machine
  int64_t shared_prefix = 0;  // tokens that all sequences have in common
  std::string json;           // a file to write; empty: none
  bool estimate = false;
  std::vector<int64_t> batches = {1, 8, 32, 256};
  std::vector<int64_t> contexts = {2048, 32768, 131072};
  std::vector<int64_t> draft_lengths = {0, 1, 3, 5, 8};
  std::vector<double> acceptances = {0.5, 0.6, 0.7, 0.8, 0.9};
};

// Sequences of the planned context that the plan's memory holds, when their first `shared_prefix`
// tokens are the same blocks.
int64_t n_sequences_that_fit(const MemoryPlan& plan, int32_t block_tokens, int64_t shared_prefix);

// Bytes when each of n candidates under verification had a copy of its sequence's context, as
// systems without shared blocks have it; n = 1: all share it, as here.
int64_t bytes_with_copies(const MemoryPlan& plan, int32_t block_tokens, int64_t n);

// Whether n sequences of that many tokens do.
bool load_fits(const MemoryPlan& plan, int32_t block_tokens, int64_t n_sequences, int64_t context,
               int64_t shared_prefix);

nlohmann::json to_json(const MemoryPlan& plan);

// Prints what the plan would do on that GPU, and gives it back: one entry for each load and K.
nlohmann::json print_estimate(const EngineOptions& options, const MemoryPlan& plan,
                              const DeviceModel& device, const PlanRequest& request);

}  // namespace pf
