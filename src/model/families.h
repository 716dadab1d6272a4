#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/model.h"

namespace pf {

// What the supported families differ in. All are decoders of the Llama kind: RMSNorm, rotate_half
// RoPE, grouped-query attention, SiLU-gated feed-forward.
struct Family {
  std::string_view name;       // model_type in config.json, general.architecture in GGUF
  float default_rope_theta;    // of the reference implementation
  int64_t default_window;      // sliding window when config.json does not say; 0 = none
  bool needs_qkv_bias;         // the family always has biases on q, k and v
  bool gguf_permutes_qk;       // llama.cpp's converter interleaves the halves of each head
  std::string_view gguf_name;  // the architecture that a GGUF of this family is written as
};

std::span<const Family> families();

// The error lists the families that are known.
Result<const Family*> find_family(std::string_view name);

// How the tensors of one file format are called.
enum class Naming { kGguf, kHuggingFace };

// A tensor of a layer: its place in LayerWeights and its names after "blk.N." and
// "model.layers.N.".
struct LayerTensorName {
  Tensor LayerWeights::*place;
  std::string_view gguf, hugging_face;
};
std::span<const LayerTensorName> layer_tensor_names();
std::string layer_tensor_name(Naming naming, int64_t layer, const LayerTensorName& name);
// `input`: width of what q, k and v read.
std::vector<int64_t> shape_in_layer(Tensor LayerWeights::*place, const ModelConfig& config,
                                    int64_t input);
bool is_bias(Tensor LayerWeights::*place);

// The tensors outside of the layers.
struct OuterNames {
  std::string_view embedding, final_norm, head, head_tokens, fc, fc_bias, embedding_norm,
      hidden_norm;
};
OuterNames outer_names(Naming naming);

// Row j of a head in `to` order is row reorder(j) of the file: llama.cpp's interleaved order
// [D / 2, 2] to Hugging Face's halves [2, D / 2], and back.
int64_t interleaved_row_of_half(int64_t row, int64_t head_width);
int64_t half_row_of_interleaved(int64_t row, int64_t head_width);

// A copy of `t` whose rows within each head are taken from `source_row(row, head_width)`.
Tensor reorder_head_rows(const Tensor& t, int64_t head_width,
                         int64_t (*source_row)(int64_t, int64_t), ModelStorage& storage);

// Ranges and relations within a config; the message names the key-like thing that is wrong.
// vocabulary_size may still be 0. `rope_theta` may be 0 (missing), not negative or NaN.
Status check_config(const ModelConfig& config);

// Finds every tensor of the model among `tensors`, checks types and shapes against the config and
// refuses tensors that no model of the family has. config.vocabulary_size, where not 0, must be
// the rows of the embedding; it becomes the rows of the head. kShapes: rows of q and k stay in the
// file's order.
Result<Model> assemble(ModelConfig config, std::vector<Tensor> tensors, Naming naming,
                       ModelStorage storage, Content content = Content::kWeights);

// GGUF knows one key per kind of end token; a list of any length goes under this key.
inline constexpr const char* kGgufEosTokenIds = "pilotfish.eos_token_ids";
inline constexpr const char* kGgufInt4Group = "pilotfish.int4_group";  // ModelConfig::int4_group
inline constexpr const char* kGgufTapLayers = "pilotfish.tap_layers";  // ModelConfig::tap_layers

// The config of a GGUF file, of a config.json (generation_config.json may be empty).
class GgufFile;
Result<ModelConfig> config_of_gguf(const GgufFile& file);
Result<ModelConfig> config_of_json(std::string_view config_json,
                                   std::string_view generation_config_json);

}  // namespace pf
