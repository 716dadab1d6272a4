#pragma once

#include <vector>

#include "model/families.h"
#include "model/pile.h"

namespace pf {

// What an EAGLE head has besides a decoder's tensors. Three layouts are known, all with fc.weight:
//   - this project's: layers.0.*, enorm, hnorm, norm, lm_head; d2t holds token ids of the target;
//   - EAGLE and EAGLE-2: layers.0.* without input_layernorm, no norms elsewhere, maybe fc.bias and
//     embed_tokens; the target's own head;
//   - EAGLE-3: midlayer.* (or layers.0.*) with hidden_norm and q, k, v of 2 E columns, norm,
//     lm_head; d2t holds what to add to a row of the head for its token, t2d which tokens have one.
// The GGUF files that `quantize` writes hold token ids in all cases.

// Heads name their tensors as a model's, without the "model." before most of them.
void name_head_as_model(std::vector<Tensor>* tensors);

// fc and its norms, and which kind of head it is. Does nothing without an fc.
Status take_features(Pile& pile, const OuterNames& names, Naming naming, Model* m);

// An EAGLE or EAGLE-2 head: neither embedding nor hidden state are normalised.
bool has_bare_input(const Model& m);

// The reduced vocabulary, in the order of the file.
Status take_head_tokens(Pile& pile, const OuterNames& names, Naming naming, Model* m);

// Rows of a reduced head in the order of their tokens.
void sort_head(Model* m);

}  // namespace pf
