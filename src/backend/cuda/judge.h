#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/rules.h"
#include "backend/cuda/staging.h"
#include "kernels/accept.h"
#include "kernels/sample.h"

namespace pf {

// The accept rule and known tokens' scores on the device, over the logit rows of the last forward
// pass, in chunks of rows that the head's room holds.
class CudaJudge {
 public:
  // Logits float [n, V] of logit rows of the last pass, until it is asked again: the rows lie on
  // the device and, for who has several devices, here.
  using Logits = std::function<View<float, 2>(View<const int32_t, 1> on_device,
                                              std::span<const int32_t> rows)>;

  CudaJudge(int64_t vocabulary, const CudaOptions& options, Logits logits, cudaStream_t stream);

  void accept(const Batch& batch, std::span<const AcceptJob> jobs, std::span<AcceptResult> results);
  void score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results);
  int64_t scratch_bytes() const;

 private:
  void accept_chunk(const Batch& batch, std::span<const AcceptJob> jobs,
                    std::span<AcceptResult> results);
  void launch(int64_t n_rows, int32_t n_top);
  // Fetches what came back, one copy: accepted [B], top [rows, n_top] and, where a drafter watches
  // nodes, the laws [rows].
  void fetch(bool laws, int64_t n_jobs, int64_t n_rows, int32_t n_top);

  const int64_t V_;
  const int32_t chunk_rows_;
  const Logits logits_;
  const cudaStream_t stream_;

  DeviceRules rules_;
  DeviceTreesOnHost trees_;
  std::vector<const DraftTree*> job_trees_;
  std::vector<int32_t> logit_rows_, row_sequence_, known_;
  Staging staging_;
  DeviceBuffer<float> residual_;         // [chunk, V]
  DeviceBuffer<kernels::TokenValue> q_;  // [chunk, q capacity]
  DeviceMemory answers_;  // accepted [chunk], top [chunk, kMaxListedTop], laws [chunk]
  PinnedMemory answers_host_;
};

}  // namespace pf
