#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/options.h"
#include "model/model.h"

namespace pf {

// How much memory goes where, worked out from shapes before anything is loaded onto a device.
struct MemoryPlan {
  struct Part {
    std::string name;
    int64_t bytes = 0;
  };
  std::vector<Part> parts;
  int64_t max_context = 0;         // tokens of one sequence
  int32_t n_blocks = 0;            // of block_size tokens, all planes
  int64_t kv_bytes_per_token = 0;  // all planes
  int64_t available_bytes = 0;     // what the machine has to give

  int64_t total_bytes() const;
};

// Bytes of a model's matrices once packed as `type` (fp32, bf16, int8, int4 in groups of 32).
int64_t packed_bytes(const Model& model, const std::string& type);

// A draft on the target's device.
struct PlannedDraft {
  const Model* model = nullptr;
  bool in_tables = true;        // it has a plane over the target's blocks
  int32_t n_window_blocks = 0;  // that it has besides
};

// Refuses what cannot hold one sequence of the longest context; the message
// says which flag to lower to what. Kv blocks: as asked for, else what max_num_seqs full sequences
// need, as far as memory_utilization of the free memory allows.
Result<MemoryPlan> plan_memory(const EngineOptions& options, const Model& target,
                               std::span<const PlannedDraft> drafts, int64_t available_bytes);

// Free memory of this machine and of the control group that the process lives in, in bytes.
int64_t available_memory_bytes();

}  // namespace pf
