#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/head_chunks.h"
#include "backend/cuda/rules.h"
#include "backend/cuda/staging.h"
#include "kernels/accept.h"
#include "kernels/sample.h"

namespace pf {

// The accept rule and known tokens' scores on the device, over the logit rows of the last forward
// pass. accept() and score() send what the kernels read in one copy, launch, and wait once for one
// copy of what they said, however many chunks of rows the head's room makes of it (head_chunks.h).
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
  // What the kernels read of all sequences, in staging_.
  struct Sent {
    Staging::Part<int32_t> rows, row_sequence;
    Staging::Part<kernels::SamplingRules> sampling;
    Staging::Part<kernels::AcceptRules> accept;
    kernels::RuleLists lists;
    kernels::DraftTrees trees;
  };
  // What they say, one behind the other: accepted [B], top [R, n_top], laws [R].
  struct Answers {
    int64_t n_jobs = 0, n_rows = 0;
    int32_t n_top = 0;
    bool watched = false;  // a drafter watches nodes: the laws are wanted

    size_t laws_begin() const;
    size_t bytes() const;  // that are fetched
    kernels::Accepted* accepted(std::byte* base) const;
    kernels::TokenValue* top(std::byte* base) const;
    kernels::RowLaw* laws(std::byte* base) const;
  };

  Answers gather(const Batch& batch, std::span<const AcceptJob> jobs);
  Sent send();
  void launch(const HeadChunk& chunk, const Sent& sent, const Answers& answers);

  const int64_t V_;
  const CudaOptions options_;
  const Logits logits_;
  const cudaStream_t stream_;

  std::vector<HeadChunk> chunks_;  // of the present call
  DeviceRules rules_;              // first_row, and row_sequence_ below, count within a chunk
  DeviceTreesOnHost trees_;
  std::vector<const DraftTree*> job_trees_;
  std::vector<int32_t> logit_rows_, row_sequence_, known_;
  std::vector<int32_t> first_rows_;  // of each job among all
  Staging staging_;
  DeviceBuffer<float> residual_;         // [sequences at once, V]
  DeviceBuffer<kernels::TokenValue> q_;  // [sequences at once, q capacity]
  DeviceMemory answers_;
  PinnedMemory answers_host_;
};

}  // namespace pf
