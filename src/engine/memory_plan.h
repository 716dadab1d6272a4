#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/device.h"
#include "engine/options.h"
#include "model/model.h"

namespace pf {

// How much memory goes where, worked out from shapes before anything is loaded onto a device.
struct MemoryPlan {
  struct Part {
    std::string name;
    int64_t bytes = 0;
  };
  // Weights, scratch, graphs of each model; then KV pools. Of the first device, where several share
  // the target: it has the most.
  std::vector<Part> parts;
  int64_t other_device_bytes = 0;        // on each of the others
  std::vector<ResidentModel> residents;  // as asked for, with blocks and context filled in
  int64_t max_context = 0;               // tokens of one sequence
  int32_t n_blocks = 0;                  // of block_size tokens, all planes
  int64_t blocks_per_sequence = 0;       // of one of max_context tokens, with its draft rows
  int64_t kv_bytes_per_token = 0;        // all planes
  int64_t available_bytes = 0;           // what the machine has to give
  int64_t budget_bytes = 0;              // of it, as memory_utilization allows
  int64_t affordable_blocks = 0;         // that the budget has room for
  int64_t largest_context = 0;           // that one sequence alone could have in them

  int64_t total_bytes() const;
};

// Bytes of a model's matrices once packed as `type` (fp32, bf16, int8, int4 in groups of 32).
int64_t packed_bytes(const Model& model, const std::string& type);

struct PlanDevice {
  Device device = Device::kCpu;
  int32_t n_threads = 1;
  int64_t available_bytes = 0;
};

// For the target (the first) and its drafts, by the footprints of their backends. Refuses what
// cannot hold one sequence of the longest context; the message says which flag to lower to what. KV
// blocks: as asked for, else what max_num_seqs full sequences need, as far as memory_utilization of
// the free memory allows.
Result<MemoryPlan> plan_memory(const EngineOptions& options, const PlanDevice& device,
                               std::vector<ResidentModel> residents);

// Free memory of this machine and of the control group that the process lives in, in bytes.
int64_t available_memory_bytes();

}  // namespace pf
