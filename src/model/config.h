#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pf {

// How rotary positions are stretched beyond the context that the model was trained on.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  float factor = 1;                   // new context / original context
  int64_t original_max_position = 0;  // llama3, yarn; tokens
  // llama3: wavelengths above original / low_freq_factor are stretched by the whole factor, those
  // below original / high_freq_factor not at all, those between in part.
  float low_freq_factor = 1, high_freq_factor = 4;
  // llama3 as GGUF stores it: one divisor per frequency, in place of the formula. [D / 2] or empty.
  std::vector<float> frequency_factors = {};
  // yarn: Peng et al. 2023, section 3. attention_factor multiplies cos and sin; 0 = 0.1 ln(factor)
  // + 1. ext_factor blends: 0 = plain interpolation, 1 = YaRN.
  float beta_fast = 32, beta_slow = 1, attention_factor = 0, ext_factor = 1;
  bool truncate = true;  // yarn: the ramp begins and ends at whole dimensions
};

// What the model's makers advise; a request overrides each.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k, max_new_tokens;
  std::vector<int32_t> eos_token_ids;
  std::optional<int32_t> bos_token_id;
};

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2" or "mistral"
  std::string name;          // as the file calls itself; may be empty
  int64_t n_layers = 0;
  int64_t width = 0;            // E
  int64_t ffn_width = 0;        // F
  int64_t n_heads = 0;          // H
  int64_t n_kv_heads = 0;       // G, divides H
  int64_t head_width = 0;       // D, even
  int64_t vocabulary_size = 0;  // V: rows of the head = width of the logits
  int64_t n_tokens = 0;         // ids that may be fed; 0 = the file does not say
  int64_t max_context = 0;      // tokens, with rope_scaling used
  float rope_theta = 0;         // 0 = missing in the file (only a draft may keep that)
  float norm_epsilon = 0;
  RopeScaling rope_scaling;
  int64_t sliding_window = 0;  // tokens that a token sees, itself included; 0 = all
  bool qkv_bias = false;
  bool tied_head = false;
  // Weights that share a scale in the file's 4-bit tensors: 32, or 128 where four blocks in a row
  // always have one (rows that are no multiple of 128: 32).
  int int4_group = 32;
  // An EAGLE-3 head's: the layers of its target in front of which the states stand that it reads;
  // empty: the file does not say.
  std::vector<int32_t> tap_layers = {};
  GenerationDefaults generation;
};

struct RopeFrequencies {
  std::vector<float> inverse;  // [D / 2]: the angle of dimension i at position t is t * inverse[i]
  float attention_factor = 1;  // multiplies cos and sin (YaRN), else 1
};

// Requires: rope_theta > 0. Computed in double, rounded once. Sources: Su et al. 2021, eq. 15;
// Chen et al. 2023 (linear); the Llama 3.1 reference code (llama3); Peng et al. 2023 (YaRN).
RopeFrequencies rope_frequencies(const ModelConfig& config);

}  // namespace pf
