#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/passes.h"
#include "backend/footprint.h"
#include "batch/batch.h"
#include "kernels/costs.h"

namespace pf {

// What the CUDA backend would issue for a batch or a draft, noted down without a device or a
// toolkit: the kernels in their order with their grids, bytes and FLOPs (kernels/costs.h), and how
// often the host copies and waits. Plans attention as the backend does, so a KV block that several
// rows read once costs its bytes once.
class LaunchList {
 public:
  // A Model of shapes will do; it and its target outlive the list. No head over hidden states, and
  // what a target does for one is left out.
  LaunchList(const Model& model, const Model* embedding_of, const CudaOptions& options,
             int32_t n_multiprocessors);

  void clear();
  // As Backend::forward of the batch; the first n_layers; 0: all.
  void forward(const Batch& batch, int64_t n_layers = 0) { forward(batch, n_layers, 0); }
  // As Backend::accept of all segments of the batch.
  void accept(const Batch& batch);
  // As Backend::propose, chains only. Of a job, its tokens' number, place and length are looked at.
  void propose(std::span<const ProposeJob> jobs, int64_t n_layers = 0);

  const std::vector<kernels::LaunchCost>& launches() const { return launches_; }
  // By launch: whether it is a graph's node, behind the first steps of its shape.
  const std::vector<bool>& in_graph() const { return in_graph_; }
  int64_t n_copies() const { return n_copies_; }  // to the device, and memory that is cleared
  int64_t n_waits() const { return n_waits_; }    // for a copy to the host

  // Operations of passes.h.
  void embed();
  void prepare_angles();
  void first_norm();
  void make_queries(int64_t layer);
  void attend(int64_t layer);
  void add_product(int64_t layer, LayerSum which, bool norm_follows);
  void activate(int64_t layer);
  void pick_logit_rows();
  void final_norm();
  void keep_tap(int64_t) {}
  void keep_last() {}

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
  void head(int64_t n) { add(product(n, {&model_.head}, {.written = 4 * n * m_.head_rows})); }
  void propose_together(std::span<const ProposeJob> jobs, int64_t n_layers);
  void run_committed(std::span<const ProposeJob> jobs, int64_t n_layers, int64_t n_logit_rows);
  void feed_level(std::span<const ProposeJob> jobs, int32_t depth, int64_t n, int64_t n_layers);
  void grow_level(int64_t n);

  const Model& model_;
  const ModelShape m_;
  const CudaOptions options_;
  const int32_t n_thread_blocks_;
  kernels::AttentionPlan plan_;
  std::vector<kernels::AttentionSegment> segments_;
  std::vector<kernels::LaunchCost> attention_;  // of one layer
  int64_t T_ = 0, R_ = 0;                       // of the present pass
  Batch batch_;                                 // of a draft
  std::vector<size_t> order_;
  std::vector<kernels::LaunchCost> launches_;
  std::vector<bool> in_graph_;
  bool capturing_ = false;
  int64_t n_copies_ = 0, n_waits_ = 0;
};

}  // namespace pf
