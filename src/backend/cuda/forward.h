#pragma once

#include "backend/cuda/cuda_model.h"
#include "backend/cuda/graphs.h"
#include "backend/cuda/head_input.h"
#include "backend/cuda/pass.h"
#include "kernels/kv_plane.h"

namespace pf {

// The forward pass of one model on the device, layer by layer on one stream. Owns its scratch and
// the KV plane.
template <class A>
class CudaForward {
 public:
  // graphs: null: launch by launch.
  CudaForward(const CudaModel<A>& model, const CudaOptions& options, Graphs* graphs,
              cudaStream_t stream);

  // Runs the batch; where it is small, as one graph, its rows padded. n_layers: the first so many
  // only; 0: all. Hidden states of the logit rows are kept until the next run; those behind them,
  // up to `n_logit_rows`, become zero. `hidden` [T]: where the states lie that a head's rows are
  // made with; empty but for a head.
  void run(const Batch& batch, int64_t n_layers = 0, int64_t n_logit_rows = 0,
           std::span<const HiddenRef> hidden = {});

  // The same in parts, for several devices of which each has its share of every layer
  // (sharded_forward.h): the batch is made ready to launch, or what another one has made ready is;
  // then the parts of the pass. The products that end half a layer go to `partials` [T, E], once
  // sum_into() was called; add_partials() adds those of all devices, [n, T, E], to the residual
  // stream behind that half, and makes the norm that comes behind it.
  enum class PassPart { kBegin, kAttention, kFfn, kEnd };
  void prepare(const Batch& batch, int64_t T, int64_t R, std::span<const HiddenRef> hidden = {});
  void prepare_as(const CudaForward& other);
  void launch_part(PassPart part, int64_t layer = 0);
  void sum_into(float* partials) { partials_ = partials; }
  void add_partials(PassPart part, int64_t layer, const float* partials, int64_t n);

  // The parts of it, for sequences of passes that are captured as a whole: `pass` written to
  // `staging` and sent, then launched. `tokens` [T] on the device stand for those of the batch
  // where given: a draft feeds what it has just drawn.
  PassWriter& writer() { return writer_; }
  CudaHeadInput<A>& head_input() { return head_input_; }
  void launch(const Pass& pass, const Staging& staging, const int32_t* tokens, int64_t n_layers);

  // Logits float [n, head_rows] of logit rows `rows` (on the device), until the next call.
  // Requires: n <= head_chunk_rows.
  View<float, 2> logits(View<const int32_t, 1> rows);
  // The same of logit rows [first, first + n).
  View<float, 2> logits(int32_t first, int32_t n);

  // The states of all rows of the last run of all layers. Requires: they are kept.
  HiddenStates states() const {
    return {kept_.data(), max_rows_, kept_width_, kept_type(), true, stream_};
  }
  kernels::KvPlane<A> plane() const { return plane_; }
  int32_t max_rows() const { return max_rows_; }
  int64_t kv_bytes() const {  // with the states that a head keeps for its blocks
    return static_cast<int64_t>(kv_.bytes() + kv_scales_.bytes()) + head_input_.kept_bytes();
  }
  int64_t scratch_bytes() const;

 private:
  struct Ops;
  static StateType kept_type() {
    return std::is_same_v<A, f16> ? StateType::kF16 : StateType::kBf16;
  }
  // y = x, converted to A.
  void narrow_rows(View<A, 2> y, View<const float, 2> x);
  View<const int32_t, 1> iota(int64_t n) const { return {iota_.data(), {n}}; }

  // Rows [first, first + n) of a pass.
  struct Stretch {
    int64_t first, n;
    bool by_library;
  };

  void find_prompts(const Batch& batch);
  // The rows of a pass by who multiplies them with w.
  std::span<const Stretch> stretches(int64_t T, const CudaMatrix<A>& w);
  template <class Y>
  void product_by_library(View<Y, 2> y, View<const A, 2> x, const CudaMatrix<A>& w, bool add);
  // y += x w^T
  void add_product(View<float, 2> y, View<const A, 2> x, const CudaMatrix<A>& w);
  View<A, 2> wide(DeviceBuffer<A>& scratch, int64_t n, int64_t width) {
    return {scratch.data(), {n, width}};
  }

  const CudaModel<A>& model_;
  const int32_t max_rows_, chunk_rows_;
  Graphs* const graphs_;
  const Blas blas_;  // empty: no library
  const cudaStream_t stream_;
  const int32_t n_thread_blocks_;  // that fill the device
  DeviceMemory kv_;
  DeviceBuffer<float> kv_scales_;  // of int8
  kernels::KvPlane<A> plane_;

  Staging staging_;
  PassWriter writer_;
  Pass pass_;
  std::vector<Stretch> stretches_;  // of the pass that is launched; empty: nothing by a library
  Stretch all_{};                   // what stretches() gives where there are none

  DeviceBuffer<float> residual_;        // [T, E]
  float* partials_ = nullptr;           // [T, E]: shares of the sums; null: all goes to residual_
  DeviceBuffer<float> angles_;          // [T, 2, D / 2]
  DeviceBuffer<float> qkv_;             // [T, (H + 2 G) D], where rope_kv_write reads it
  DeviceBuffer<A> normed_;              // [T, E]
  DeviceBuffer<A> queries_, attended_;  // [T, H, D]
  DeviceBuffer<A> activated_;           // [T, F]
  DeviceBuffer<A> gate_up_;             // [T, 2 F]: of a library's products
  DeviceBuffer<float> part_values_, part_states_;
  DeviceBuffer<uint32_t> tickets_;  // as counters_
  DeviceBuffer<float> picked_;      // [T, E]: residual of the logit rows; of a head
  DeviceBuffer<A> hidden_;          // [T, E]: the same, normed
  DeviceBuffer<A> chosen_;          // [chunk, E]
  const std::vector<int32_t> tap_layers_;
  const int64_t kept_width_;                     // E for each state that is kept; 0: none is
  DeviceBuffer<A> kept_;                         // [T, kept width]
  DeviceBuffer<int32_t> iota_;                   // [T] 0, 1, 2, ...; of a head and its target
  std::vector<DeviceBuffer<int32_t>> tap_rows_;  // by tap: its rows in kept_ as [T states, E]
  CudaHeadInput<A> head_input_;
  DeviceBuffer<float> logits_;  // [chunk, head_rows]
  // 0 but while a kernel runs, in which blocks count who comes last.
  DeviceBuffer<uint32_t> counters_;
};

}  // namespace pf
