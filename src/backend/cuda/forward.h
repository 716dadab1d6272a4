#pragma once

#include <vector>

#include "backend/cuda/cuda_model.h"
#include "backend/cuda/staging.h"
#include "batch/batch.h"
#include "kernels/attention.h"
#include "kernels/kv_plane.h"

namespace pf {

// Where token t of a sequence lies in a plane (kernels/kv_plane.h).
inline int32_t place_of(const Segment& s, int64_t slot, int32_t block_tokens) {
  return s.blocks[static_cast<size_t>(slot / block_tokens)] * block_tokens +
         static_cast<int32_t>(slot % block_tokens);
}

// The forward pass of one model on the device, layer by layer on one stream. Owns its scratch and
// the KV plane.
template <class A>
class CudaForward {
 public:
  CudaForward(const CudaModel<A>& model, const CudaOptions& options, cudaStream_t stream);

  // Runs the batch. `tokens` [T] on the device stand for batch.tokens where given: a draft feeds
  // what it has just drawn. n_layers: the first so many only; 0: all. Hidden states of the logit
  // rows are kept until the next run.
  void run(const Batch& batch, const int32_t* tokens = nullptr, int64_t n_layers = 0);

  // Logits float [n, head_rows] of logit rows `rows` (on the device), until the next call.
  // Requires: n <= head_chunk_rows.
  View<float, 2> logits(View<const int32_t, 1> rows);
  // The same of logit rows [first, first + n).
  View<float, 2> logits(int32_t first, int32_t n);

  kernels::KvPlane<A> plane() const { return plane_; }
  int32_t max_rows() const { return max_rows_; }
  int64_t kv_bytes() const { return static_cast<int64_t>(kv_.bytes()); }
  int64_t scratch_bytes() const;

 private:
  // One plan of attention (kernels/attention_plan.h), sent.
  struct Work {
    int32_t first_row, end_row;
    Staging::Part<kernels::AttentionWork::Counts> counts;
    Staging::Part<kernels::AttentionItem> items;
    Staging::Part<kernels::AttentionRun> runs;
    Staging::Part<kernels::AttentionItemRow> item_rows;
    Staging::Part<kernels::AttentionRowParts> row_parts;
    Staging::Part<int32_t> tables;
  };

  void stage(const Batch& batch);
  void plan_attention(const Batch& batch);
  void run_layer(int64_t layer, int64_t T);
  void attend(int64_t layer, int64_t T);
  View<A, 2> wide(DeviceBuffer<A>& scratch, int64_t n, int64_t width) {
    return {scratch.data(), {n, width}};
  }

  const CudaModel<A>& model_;
  const int32_t block_tokens_, max_rows_, chunk_rows_;
  const cudaStream_t stream_;
  const int32_t n_thread_blocks_;  // that fill the device
  DeviceBuffer<A> kv_;
  kernels::KvPlane<A> plane_;

  Staging staging_;
  Staging::Part<int32_t> tokens_, positions_, places_, logit_rows_;
  Staging::Part<uint64_t> masks_;
  kernels::AttentionPlan plan_;
  std::vector<kernels::AttentionSegment> segments_;
  std::vector<int32_t> places_host_;
  std::vector<Work> work_;

  DeviceBuffer<float> residual_;         // [T, E]
  DeviceBuffer<float> angles_;           // [T, 2, D / 2]
  DeviceBuffer<float> qkv_;              // [T, (H + 2 G) D]
  DeviceBuffer<A> normed_;               // [T, E]
  DeviceBuffer<A> queries_, attended_;   // [T, H, D]
  DeviceBuffer<A> gate_up_, activated_;  // [T, 2 F], [T, F]
  DeviceBuffer<float> part_values_, part_states_;
  DeviceBuffer<float> picked_;  // [T, E]: residual of the logit rows
  DeviceBuffer<A> hidden_;      // [T, E]: the same, normed
  DeviceBuffer<A> chosen_;      // [chunk, E]
  DeviceBuffer<float> logits_;  // [chunk, head_rows]
};

}  // namespace pf
