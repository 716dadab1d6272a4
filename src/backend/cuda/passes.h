#pragma once

#include <cstdint>

namespace pf {

// What the CUDA backend does in a pass, in order: written once, for whoever issues it (CudaForward)
// and for whoever wants to know what would be issued without a device (LaunchList). An Ops has one
// function per operation; each is one kernel but attend(), which is two for each plan of attention;
// keep_tap() and keep_last(), which are none but in a target that keeps states for a head (the one
// in front of a layer, the one behind the last); and what a head over such states does in place of
// embed() and of its first layer's norm.

enum class LayerNorm { kAttention, kFfn };
enum class LayerMatrix { kQkv, kO, kGateUp, kDown };

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
  ops.multiply(layer, LayerMatrix::kQkv);
  ops.rotate_and_store(layer);
  ops.attend(layer);
  ops.multiply(layer, LayerMatrix::kO);
}
template <class Ops>
void issue_ffn(Ops& ops, int64_t layer) {
  ops.norm(layer, LayerNorm::kFfn);
  ops.multiply(layer, LayerMatrix::kGateUp);
  ops.activate();
  ops.multiply(layer, LayerMatrix::kDown);
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
