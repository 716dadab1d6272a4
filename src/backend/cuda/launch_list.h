#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/draft_jobs.h"
#include "backend/cuda/passes.h"
#include "backend/footprint.h"
#include "batch/batch.h"
#include "kernels/attention_blocks.h"
#include "kernels/costs.h"

namespace pf {

// What the CUDA backend would issue for a batch or a draft, noted down without a device or a
// toolkit: the kernels in their order with their grids, bytes and FLOPs (kernels/costs.h), and how
// often the host copies and waits. Plans attention as the backend does, so a KV block that several
// rows read once costs its bytes once. Of a model that several devices share: what the first
// launches, and the exchanges between them.
class LaunchList {
 public:
  // A Model of shapes will do; it and its target outlive the list. No head over hidden states, and
  // what a target does for one is left out.
  LaunchList(const Model& model, const Model* embedding_of, const CudaOptions& options,
             const kernels::Multiprocessors& multiprocessors);

  void clear();
  // As Backend::forward of the batch; the first n_layers; 0: all.
  void forward(const Batch& batch, int64_t n_layers = 0) { forward(batch, n_layers, 0); }
  // As Backend::accept of all segments of the batch.
  void accept(const Batch& batch);
  // As Backend::propose, chains only. Of a job, its tokens' number, place and length are looked at.
  void propose(std::span<const ProposeJob> jobs, int64_t n_layers = 0);
  // As Backend::propose of heads for each position to come over states of this list's model, in the
  // numbers of its options: of n_jobs sequences, each asking the first n_levels.
  void propose_heads(const Model& heads, int64_t n_jobs, int32_t n_levels);

  const std::vector<kernels::LaunchCost>& launches() const { return launches_; }
  // By launch: whether it is a graph's node, behind the first steps of its shape.
  const std::vector<bool>& in_graph() const { return in_graph_; }
  int64_t n_copies() const { return n_copies_; }  // to the device, and memory that is cleared
  int64_t n_waits() const { return n_waits_; }    // for a copy to the host
  int32_t n_devices() const { return options_.n_devices; }
  // Gathers (collective.h), and the bytes that a device gets of the others in them.
  int64_t n_exchanges() const { return n_exchanges_; }
  int64_t exchanged_bytes() const { return exchanged_bytes_; }

  // Operations of passes.h.
  void start();
  void make_queries(int64_t layer);
  void attend(int64_t layer);
  void add_product(int64_t layer, LayerSum which, bool norm_follows);
  void activate(int64_t layer);
  void norm_logit_rows();
  void keep_tap(int64_t) {}
  void keep_last() {}

  // And of draft_jobs.h.
  void run_committed(int64_t padded);
  void stage_levels(int64_t) { ++n_copies_; }
  void run_levels(int64_t padded);
  void fetch() { ++n_waits_; }
  void clear_trees() { ++n_copies_; }
  void feed(int32_t depth, int64_t n);
  void list(int32_t depth, int64_t first, int64_t n);
  void grow(int32_t depth, int64_t n);

  // And of head_passes.h; fetch() is above.
  void gather_states();
  int32_t n_head_blocks(int32_t h) const;
  void run_head_block(int32_t h, int32_t b);
  void list_head(int32_t h);

 private:
  using Tensors = std::initializer_list<const Tensor*>;
  void add(const kernels::LaunchCost& cost) {
    launches_.push_back(cost);
    in_graph_.push_back(capturing_);
  }
  void forward(const Batch& batch, int64_t n_layers, int64_t n_logit_rows);
  // T rows and R logit rows are launched, padding included.
  void begin_pass(const Batch& batch, int64_t T, int64_t R);
  kernels::LaunchCost product(int64_t T, Tensors tensors, kernels::OutputBytes out) const;
  kernels::LaunchCost product(int64_t T, Tensors tensors, int int4_group,
                              kernels::OutputBytes out) const;
  kernels::LaunchCost head_product(const Tensor& w) const;
  void head(int64_t n);
  void exchange(int64_t floats) {
    ++n_exchanges_;
    exchanged_bytes_ += (options_.n_devices - 1) * floats * 4;
  }
  int64_t top_n() const { return std::min<int64_t>(options_.draft_top_n, m_.head_rows); }

  std::unique_ptr<Model> shard_;  // where several devices share the model
  const Model& model_;            // of one device
  const Tensor& head_;            // which may be the target's
  const int head_group_;          // ModelConfig::int4_group of its file
  ModelShape m_;
  const CudaOptions options_;
  const int32_t n_thread_blocks_;
  kernels::AttentionPlan plan_;
  std::vector<kernels::AttentionSegment> segments_;
  std::vector<kernels::LaunchCost> attention_;  // of one layer
  int64_t T_ = 0, R_ = 0;                       // of the present pass
  int64_t n_layers_ = 0;                        // of a draft
  const Model* heads_ = nullptr;                // of propose_heads()
  DraftJobs jobs_;
  Batch batch_;
  std::vector<HiddenRef> hidden_;
  bool fixed_ = false;  // every level is one plan of attention, as a graph needs
  std::vector<kernels::LaunchCost> launches_;
  std::vector<bool> in_graph_;
  bool capturing_ = false;
  int64_t n_copies_ = 0, n_waits_ = 0, n_exchanges_ = 0, exchanged_bytes_ = 0;
};

}  // namespace pf
