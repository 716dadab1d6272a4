#pragma once

#include <span>
#include <vector>

#include "backend/cuda/cuda_model.h"
#include "backend/cuda/pass.h"

namespace pf {

// What enters the first layer of a head over hidden states, made on the device from embeddings and
// from states of three places: the target's last forward, those kept for KV blocks, and what the
// head itself said in its pass before. Owns the kept ones.
template <class A>
class CudaHeadInput {
 public:
  // Room for nothing where the model is no head.
  CudaHeadInput(const CudaModel<A>& model, const CudaOptions& options, int32_t max_rows,
                cudaStream_t stream);

  // Room for where the states of a pass's rows lie, behind PassWriter::place.
  void place(Staging* staging, Pass* pass) const;
  void fill(std::span<const HiddenRef> hidden, Staging* staging, Pass* pass) const;
  // What is launched for a pass besides what its numbers of rows say.
  int32_t variant(const Pass& pass) const {
    return model_.head_kind != HeadKind::kEagle3 ? 0
                                                 : pass.hidden.has_own + 2 * pass.hidden.has_other;
  }

  // What the head said of the logit rows of its pass before.
  struct Own {
    const A* hidden;        // [max rows, E] behind the final norm
    const float* residual;  // [max rows, E] before it
  };
  // residual float [T, E]; `tokens` [T] on the device; `iota` [T]: 0, 1, 2, ...
  void run(View<float, 2> residual, const int32_t* tokens, const Pass& pass, const Staging& staging,
           View<const int32_t, 1> iota, Own own);
  // EAGLE-3: [T, 2 E], what q, k and v of the first layer read.
  View<const A, 2> joined(int64_t T) const { return {joined_.data(), {T, 2 * model_.E}}; }

  void keep(std::span<const HiddenKeep> keeps);
  void copy_blocks(std::span<const BlockCopy> copies);
  int64_t kept_bytes() const { return static_cast<int64_t>(kept_.bytes()); }
  int64_t bytes() const;  // without those

 private:
  View<const A, 2> target_states() const {
    return {static_cast<const A*>(states_.data), {states_.rows, states_.width}};
  }
  View<A, 2> kept_states() const { return {kept_.data(), {n_blocks_, states_.width}}; }
  View<const A, 2> embedding() const {
    return {model_.embedding.data(), {model_.embedding_rows, model_.E}};
  }
  // Rows of `from` to rows of the kept states.
  void copy_to_kept(View<const A, 2> from);

  const CudaModel<A>& model_;
  const HiddenStates states_;
  const int64_t n_blocks_, max_rows_;
  const cudaStream_t stream_;
  DeviceBuffer<A> kept_;      // [N, width]
  DeviceBuffer<A> joined_;    // [T, 2 E]
  DeviceBuffer<A> features_;  // EAGLE-3: [T, width]
  Staging staging_;           // of keep and copy_blocks
  std::vector<int32_t> from_, to_;
};

}  // namespace pf
