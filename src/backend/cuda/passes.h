#pragma once

#include <cstdint>

namespace pf {

// What the CUDA backend does in a pass, in order: written once, for whoever issues it (CudaForward)
// and for whoever wants to know what would be issued without a device (LaunchList). An Ops has one
// function per operation; each is one kernel but make_queries(), which is two where keys and values
// are int8; add_product(), which is told whether a norm follows and needs a kernel for it beyond
// kernels::kNormRows rows; attend(), which is one for each plan of attention;
// keep_tap() and keep_last(), which are none but in a target that keeps states for a head (the one
// in front of a layer, the one behind the last); and start() and norm_logit_rows() of a head over
// such states, whose first layer reads something else and which keeps what it says.

enum class LayerSum { kO, kDown };  // products that are added to the residual

template <class Ops>
void issue_begin(Ops& ops) {
  ops.start();
}

// The halves of a layer. The product that ends each is added to the residual stream, and the norm
// that comes behind is made with it; where several devices share the model (sharded_forward.h),
// each has its share of the sum there, and the norm waits until all have been added.
template <class Ops>
void issue_attention(Ops& ops, int64_t layer) {
  ops.keep_tap(layer);
  ops.make_queries(layer);
  ops.attend(layer);
  ops.add_product(layer, LayerSum::kO, true);
}
template <class Ops>
void issue_ffn(Ops& ops, int64_t layer, bool is_last) {
  ops.activate(layer);
  ops.add_product(layer, LayerSum::kDown, !is_last);
}

// The hidden states of the logit rows.
template <class Ops>
void issue_end(Ops& ops) {
  ops.norm_logit_rows();
  ops.keep_last();
}

template <class Ops>
void issue_pass(Ops& ops, int64_t n_layers) {
  issue_begin(ops);
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    issue_attention(ops, layer);
    issue_ffn(ops, layer, layer + 1 == n_layers);
  }
  issue_end(ops);
}

}  // namespace pf
