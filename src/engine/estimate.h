#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/launch_list.h"
#include "engine/device.h"
#include "engine/device_model.h"

namespace pf {

// How long steps would take on a described GPU: the roofline of the very launches that the CUDA
// backend would issue (LaunchList). A launch takes the longest of: its bytes at the reachable share
// of the memory's peak (less where too few blocks of threads ask for them), its FLOPs at the
// reachable share of the peak that does them, and the least that any kernel takes; and the gap to
// the next launch. Devices that share a model work at the same time; a gather between them takes
// its least and its bytes over the link. On paper: what it says is to be checked against a device.
struct RooflineShares {
  double memory = 0.88, tensor = 0.70, scalar = 0.50, link = 0.70;  // of the data sheet's peaks
  double smallest_kernel_us = 2.0;
  double host_step_us = 20, host_sequence_us = 0.5;  // scheduling between two steps
};

struct Work {
  double seconds = 0;
  int64_t n_launches = 0, bytes = 0;  // of one device
  double flops = 0;
  int64_t n_exchanges = 0, exchanged_bytes = 0;  // between devices that share the model
};
Work estimate_work(const LaunchList& list, const DeviceModel& device, const RooflineShares& shares);

// B sequences that have `context` tokens each, the first `shared_prefix` of them the same blocks.
struct Load {
  int32_t n_sequences = 1;
  int64_t context = 0, shared_prefix = 0;
};

// A step of such a load with chains of K tokens from a draft model; K = 0: a plain one.
struct StepEstimate {
  int32_t K = 0;
  Work target, draft;  // verification with head and accept rule; K proposals
  double host_seconds = 0;

  double seconds() const { return target.seconds + draft.seconds + host_seconds; }
  // Of all sequences, when each drafted token is kept with probability a if those before it were:
  // E = (1 - a^(K+1)) / (1 - a) tokens a step (Leviathan et al. 2023, eq. 1).
  double tokens_per_second(const Load& load, double acceptance) const;
};
double expected_tokens(double acceptance, int32_t K);

// Requires: residents of a CUDA plan, the target first; their models outlive this. Of the drafts,
// models on the target's device are estimated; what a CPU or a head would take is not.
class StepEstimator {
 public:
  StepEstimator(const EngineOptions& options, const std::vector<ResidentModel>& residents,
                const DeviceModel& device, const RooflineShares& shares);
  // With chains of the draft drafts()[draft].
  StepEstimate estimate(const Load& load, int32_t K, size_t draft = 0);
  // With chains of the target's own Medusa heads, in the drafts' number format: each has a block
  // [E, E] and a matrix [V, E] (Cai et al. 2024, "Medusa-1").
  StepEstimate estimate_heads(const Load& load, int32_t n_heads);
  // The passes over a prompt in chunks of max_num_batched_tokens: the target's, up to the first
  // token; or what drafts()[draft] has to catch up with.
  Work prompt(int64_t n_tokens);
  Work draft_prompt(int64_t n_tokens, size_t draft = 0);
  // By their names as residents.
  const std::vector<std::string>& drafts() const { return drafts_; }
  const std::vector<std::string>& not_estimated() const { return not_estimated_; }

 private:
  StepEstimate verified(const Load& load, int32_t K);  // without its draft
  void run_prompt(int64_t n_tokens, LaunchList* list, Batch* last) const;

  const DeviceModel& device_;
  const RooflineShares shares_;
  const int32_t block_tokens_, max_rows_;
  const Model& target_;
  const CudaOptions heads_options_;  // of heads that the target might have
  std::vector<LaunchList> lists_;    // the target's, then by draft
  std::vector<std::string> drafts_, not_estimated_;
};

}  // namespace pf
