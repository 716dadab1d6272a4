#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/address_range.h"
#include "base/mapped_file.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/tensor.h"

namespace pf {

// One layer of a Llama-like decoder. Matrices are [out, in]. q and k rows stand in the rotate_half
// order of Hugging Face whatever the file: within a head, rows i and i + D / 2 turn together.
struct LayerWeights {
  Tensor attention_norm;          // [E]; empty in the first layer of some heads: no norm
  Tensor q, k, v;                 // [H D, E], [G D, E], [G D, E]; of an EAGLE-3 head [.., 2 E]
  Tensor q_bias, k_bias, v_bias;  // [H D], [G D], [G D]; empty without qkv_bias
  Tensor o;                       // [E, H D]
  Tensor ffn_norm;                // [E]
  Tensor gate, up, down;          // [F, E], [F, E], [E, F]
};

// The bytes behind a model's tensors. Move-only; moving it moves no byte.
struct ModelStorage {
  std::vector<MappedFile> files;
  std::vector<std::unique_ptr<std::byte[]>> buffers;
  std::vector<AddressRange> ranges;  // of matrices that are not there

  std::span<std::byte> allocate(size_t bytes) {
    buffers.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
    return {buffers.back().get(), bytes};
  }
};

// A head drafts over its target's hidden states. With the state h of the token before, the row of
// a token with embedding e is made so:
//   kEagle   fc [norm(e); norm(h)] enters the first layer. h is the target's state behind its final
//            norm, or what the head itself said, behind its own final norm, of a token that it has
//            drafted (Li et al. 2024).
//   kEagle3  h enters the first layer, whose q, k and v read [norm(e); norm(h)]. h is fc times the
//            states of some of the target's layers, side by side; of a drafted token it is the
//            head's own residual stream behind its last layer (Li et al. 2025).
//   kMedusa  there are no layers, no rows and no plane: several heads read h, each for a position
//   of
//            its own (MedusaHead; Cai et al. 2024, "Medusa-1").
enum class HeadKind : uint8_t { kNone, kEagle, kEagle3, kMedusa };

// x += silu(w x + bias).
struct MedusaBlock {
  Tensor w, bias;  // [E, E], [E]
};
// x is h; then the blocks; the logits of the head's position are out x.
struct MedusaHead {
  std::vector<MedusaBlock> blocks;
  Tensor out;  // [V, E]
};

// A checked model: every tensor has the shape that the config says.
struct Model {
  ModelConfig config;
  Tensor embedding;   // [V', E]; empty when shares_embedding
  Tensor final_norm;  // [E]; empty in heads without one
  Tensor head;        // [V, E]; the embedding itself when tied; empty when shares_head
  std::vector<LayerWeights> layers;
  HeadKind head_kind = HeadKind::kNone;
  Tensor fc;                           // [E, 2 E] or [E, states E']; empty in other models
  Tensor fc_bias;                      // [E] or empty
  Tensor embedding_norm, hidden_norm;  // [E] each; empty: no norm
  // A reduced draft vocabulary: head row -> token id of the target. Ids rise from >= 0;
  // empty = the row is the id.
  std::vector<int32_t> head_tokens;
  std::vector<MedusaHead> medusa;  // kMedusa: the first one names the token behind the next
  bool shares_embedding = false;   // no embedding in the file: the target's is used
  bool shares_head = false;        // the same of the head
  std::string gguf_path;           // the file, where it was GGUF: its metadata hold the tokenizer
  ModelStorage storage;

  bool takes_hidden() const { return head_kind != HeadKind::kNone; }
  // Values of the target's states that a head reads for a token.
  int64_t hidden_width() const {
    return !takes_hidden() ? 0 : head_kind == HeadKind::kEagle3 ? fc.cols() : config.width;
  }
};

// A target without a rope_theta takes its family's default, as the reference implementations do;
// a draft keeps 0, and check_fits refuses it: a guessed base makes a draft that never agrees.
enum class Role { kTarget, kDraft };

// What of the weights is wanted. kShapes: names, types and shapes; the numbers of matrices must not
// be read, and nothing big is.
enum class Content { kWeights, kShapes };

// Loads a .gguf file, or Hugging Face's form: a folder or a .safetensors file (single, or sharded
// by model.safetensors.index.json) beside config.json and maybe generation_config.json. Weights
// stay mapped; only what must be reordered is copied. Errors name the file and the tensor or key.
// For a GGUF of the llama family, a missing rope.freq_base counts as missing, although the format
// lets readers assume 10000. With kShapes a config.json is enough, and `path` may also be a name of
// known_shape_names().
Result<Model> load_model(const std::string& path, Role role = Role::kTarget,
                         Content content = Content::kWeights);

// Some models by name ("llama-3.1-8b"), and what a config alone says of a model. Shapes only, of
// 16-bit weights. Errors list the names.
std::vector<std::string> known_shape_names();
Result<Model> known_shape(const std::string& name);
Result<Model> model_without_weights(ModelConfig config);

// Refuses a draft that cannot work beside this target: no rope_theta, another width where the
// target's embedding or hidden states are used, head_tokens beyond the target's vocabulary. The
// message lists everything that does not fit.
Status check_fits(const Model& draft, const Model& target);

// Which of the target's states a head reads, in that order: the residual stream in front of each of
// these layers (counted from 0). Empty: the state behind the final norm alone. Refuses layers that
// the target does not have.
Result<std::vector<int32_t>> tap_layers_of(const Model& head, const Model& target);

// Refuses a model that cannot be a target: a head over another one's hidden states, one without an
// embedding, or with a reduced vocabulary.
Status check_stands_alone(const Model& model);

// Looks at every weight (every scale, where quantised) with all threads of the pool; the message
// names the first tensor with NaN or infinity. load_model looks at norms and biases only, since
// this reads the whole file; `progress` counts its bytes, stored_bytes of them all.
Status check_finite(const Model& model, ThreadPool& pool, Progress* progress = nullptr);
int64_t stored_bytes(const Model& model);

// Every tensor of the model once (a tied head is the embedding), in file order of the layers.
std::vector<const Tensor*> all_tensors(const Model& model);

// The model made of the first n layers, the norm and the head. Borrows from `model`, which must
// outlive it. Requires for success: 1 <= n <= its layers.
Result<Model> first_layers(const Model& model, int n);

}  // namespace pf
