#pragma once

#include <cstdint>

#include "kernels/gemm.h"

namespace pf {

// What the CUDA backend does in a pass, in order: written once, for whoever issues it (CudaForward)
// and for whoever wants to know what would be issued without a device (LaunchList). An Ops has one
// function per operation; each is one kernel but make_queries(), which is two where keys and values
// are int8; attend(), which is two for each plan of attention; norm(), which is none where the
// product in front of it has made it;
// keep_tap() and keep_last(), which are none but in a target that keeps states for a head (the one
// in front of a layer, the one behind the last); and what a head over such states does in place of
// embed() and of its first layer's norm.

enum class LayerNorm { kAttention, kFfn };
enum class LayerSum { kO, kDown };

// Whether the product in front of a norm makes it, too, of T rows (kernels/gemm.h). Nobody is in
// front of the first, and what several devices add up is not whole before all have (is_shared).
inline bool product_makes_norm(int64_t layer, LayerNorm which, int64_t T, bool is_shared) {
  return T <= kernels::kNormRows && !is_shared && (layer > 0 || which == LayerNorm::kFfn);
}

template <class Ops>
void issue_begin(Ops& ops) {
  ops.embed();
  ops.prepare_angles();
}

// The halves of a layer. The product that ends each is added to the residual stream; where several
// devices share the model (sharded_forward.h), each has then its share of the sum, and what comes
// behind waits until all have been added.
template <class Ops>
void issue_attention(Ops& ops, int64_t layer) {
  ops.keep_tap(layer);
  ops.norm(layer, LayerNorm::kAttention);
  ops.make_queries(layer);
  ops.attend(layer);
  ops.add_product(layer, LayerSum::kO);
}
template <class Ops>
void issue_ffn(Ops& ops, int64_t layer) {
  ops.norm(layer, LayerNorm::kFfn);
  ops.activate(layer);
  ops.add_product(layer, LayerSum::kDown);
}

// The hidden states of the logit rows.
template <class Ops>
void issue_end(Ops& ops) {
  ops.pick_logit_rows();
  ops.final_norm();
  ops.keep_last();
}

template <class Ops>
void issue_pass(Ops& ops, int64_t n_layers) {
  issue_begin(ops);
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    issue_attention(ops, layer);
    issue_ffn(ops, layer);
  }
  issue_end(ops);
}

}  // namespace pf
