// The config of a Hugging Face folder: config.json and generation_config.json.
#include <algorithm>
#include <cmath>

#include "model/families.h"
#include "model/json_file.h"

namespace pf {
namespace {

using nlohmann::json;

constexpr size_t kMostConfigBytes = 1 << 20;

using Kind = RopeScaling::Kind;

float to_f32(double v) { return static_cast<float>(v); }

// YaRN's factor on cos and sin: given, or from mscale as DeepSeek's models say it, or (0) default.
float yarn_attention_factor(JsonKeys& keys, double factor) {
  if (keys.has("attention_factor")) {
    double given = keys.number("attention_factor", 1);
    if (!(given > 0)) keys.fail("attention_factor", "must be above 0");
    return to_f32(given);
  }
  double mscale = keys.number("mscale", 0), all = keys.number("mscale_all_dim", 0);
  if (mscale == 0 || all == 0 || !(factor > 1)) return 0;
  return to_f32((0.1 * mscale * std::log(factor) + 1) / (0.1 * all * std::log(factor) + 1));
}

// `keys` is rope_scaling or, since transformers 5, rope_parameters.
RopeScaling rope_scaling_of(JsonKeys& keys, int64_t max_position) {
  RopeScaling s;
  std::string type = keys.text("rope_type", keys.text("type", "default"));
  if (type == "default") return s;
  s.original_max_position = keys.integer("original_max_position_embeddings", max_position);
  s.factor = to_f32(keys.need_number("factor"));
  if (type == "linear") {
    s.kind = Kind::kLinear;
  } else if (type == "llama3") {
    s.kind = Kind::kLlama3;
    s.low_freq_factor = to_f32(keys.need_number("low_freq_factor"));
    s.high_freq_factor = to_f32(keys.need_number("high_freq_factor"));
    keys.need_integer("original_max_position_embeddings");
  } else if (type == "yarn") {
    s.kind = Kind::kYarn;
    s.beta_fast = to_f32(keys.number("beta_fast", 32));
    s.beta_slow = to_f32(keys.number("beta_slow", 1));
    s.truncate = keys.boolean("truncate", true);
    s.attention_factor = yarn_attention_factor(keys, s.factor);
  } else {
    keys.fail(
        keys.has("rope_type") ? "rope_type" : "type",
        "is '" + shown(type) + "', which is not supported (default, linear, llama3, yarn are)");
  }
  return s;
}

void read_rope(JsonKeys& keys, ModelConfig& c) {
  double theta = keys.number("rope_theta", 0);
  bool said = keys.has("rope_theta");
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const json* v = keys.find(name);
    if (v == nullptr) continue;
    JsonKeys rope(*v, name);
    if (rope.has("rope_theta")) {
      theta = rope.number("rope_theta", 0);
      said = true;
    }
    if (rope.number("partial_rotary_factor", 1) != 1) {
      rope.fail("partial_rotary_factor", "is not 1; partial RoPE is not supported");
    }
    c.rope_scaling = rope_scaling_of(rope, c.max_context);
    if (!rope.status().ok()) return keys.fail(name, "is wrong: " + rope.status().message());
    break;
  }
  if (said && !(theta > 0)) keys.fail("rope_theta", "must be above 0");
  c.rope_theta = to_f32(theta);
}

// max_position_embeddings is the context before stretching where the scaling is linear or YaRN
// (makers differ about YaRN: some write the stretched one, so the larger is right).
void stretch_context(ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  if (!(s.factor > 0 && s.factor < 1e6f) || c.max_context < 1) return;  // check_config says why
  if (s.original_max_position < 1 || s.original_max_position > INT32_MAX) return;
  double factor = s.factor;
  if (s.kind == Kind::kLinear && c.max_context <= INT32_MAX) {
    c.max_context = static_cast<int64_t>(static_cast<double>(c.max_context) * factor);
  } else if (s.kind == Kind::kYarn) {
    double stretched = static_cast<double>(s.original_max_position) * factor;
    c.max_context = std::max(c.max_context, static_cast<int64_t>(stretched));
  }
}

// The sliding window, where every layer has it. Layers of two kinds are refused.
int64_t window_of(JsonKeys& keys, const Family& family, int64_t n_layers) {
  int64_t window = keys.integer("sliding_window", family.default_window);
  if (keys.is_null("sliding_window")) window = 0;  // the default is for an absent key
  if (family.name == "llama") return 0;            // the reference ignores the key
  if (family.needs_qkv_bias) {  // qwen2: layers from max_window_layers on, if asked for
    if (!keys.boolean("use_sliding_window", false)) return 0;
    int64_t first = keys.integer("max_window_layers", 28);
    if (first >= n_layers) return 0;
    if (first > 0) keys.fail("max_window_layers", "mixes two kinds of attention; not supported");
  }
  if (const json* types = keys.find("layer_types"); types != nullptr && types->is_array()) {
    size_t sliding = 0;
    for (const json& t : *types) sliding += t == "sliding_attention";
    if (sliding == 0) return 0;
    if (sliding != types->size()) keys.fail("layer_types", "mixes kinds; not supported");
  }
  return window;
}

std::vector<int32_t> token_ids(JsonKeys& keys, const std::string& key) {
  std::vector<int32_t> out;
  const json* v = keys.find(key);
  if (v == nullptr) return out;
  json list = v->is_array() ? *v : json::array({*v});
  for (const json& id : list) {
    int64_t n = 0;
    if (!get_integer(id, &n) || n < 0 || n > INT32_MAX) {
      keys.fail(key, "must be a token id or a list of them");
      return out;
    }
    out.push_back(static_cast<int32_t>(n));
  }
  return out;
}

template <class T>
std::optional<T> optional_number(JsonKeys& keys, const std::string& key) {
  if (!keys.has(key)) return std::nullopt;
  if constexpr (std::is_same_v<T, float>) return to_f32(keys.number(key, 0));
  int64_t n = keys.integer(key, 0);
  if (n < INT32_MIN || n > INT32_MAX) keys.fail(key, "is out of range");
  return static_cast<T>(n);
}

GenerationDefaults generation_of(JsonKeys& config, JsonKeys& generation) {
  GenerationDefaults g;
  g.temperature = optional_number<float>(generation, "temperature");
  g.top_p = optional_number<float>(generation, "top_p");
  g.min_p = optional_number<float>(generation, "min_p");
  g.repetition_penalty = optional_number<float>(generation, "repetition_penalty");
  g.top_k = optional_number<int32_t>(generation, "top_k");
  g.max_new_tokens = optional_number<int32_t>(generation, "max_new_tokens");
  g.eos_token_ids = token_ids(generation, "eos_token_id");
  if (g.eos_token_ids.empty()) g.eos_token_ids = token_ids(config, "eos_token_id");
  std::vector<int32_t> bos = token_ids(generation, "bos_token_id");
  if (bos.empty()) bos = token_ids(config, "bos_token_id");
  if (!bos.empty()) g.bos_token_id = bos.front();
  return g;
}

// Where an EAGLE-3 head's states stand. Two trainers write the same key: one on its own, of layers
// in front of which they stand; the other within eagle_config, of layers behind which they do.
std::vector<int32_t> tap_layers_of(JsonKeys& keys) {
  const std::string name = "eagle_aux_hidden_state_layer_ids";
  const json *list = keys.find(name), *within = keys.find("eagle_config");
  const bool behind = list == nullptr && within != nullptr && within->is_object();
  if (behind)
    if (auto at = within->find(name); at != within->end() && !at->is_null()) list = &*at;
  std::vector<int32_t> taps;
  if (list == nullptr) return taps;
  if (!list->is_array()) keys.fail(name, "must be a list of layers");
  for (const json& layer : *list) {
    int64_t n = -1;
    if (!get_integer(layer, &n) || n < 0 || n > 4096) {
      keys.fail(name, "must be a list of layers");
      return {};
    }
    taps.push_back(static_cast<int32_t>(n + (behind ? 1 : 0)));
  }
  return taps;
}

void read_dimensions(JsonKeys& keys, ModelConfig& c) {
  c.n_layers = keys.need_integer("num_hidden_layers");
  c.width = keys.need_integer("hidden_size");
  c.ffn_width = keys.need_integer("intermediate_size");
  c.n_heads = keys.need_integer("num_attention_heads");
  c.n_kv_heads = keys.integer("num_key_value_heads", c.n_heads);
  c.head_width = keys.integer("head_dim", c.n_heads > 0 ? c.width / c.n_heads : 0);
  c.max_context = keys.need_integer("max_position_embeddings");
  c.vocabulary_size = keys.need_integer("vocab_size");
  c.norm_epsilon = to_f32(keys.need_number("rms_norm_eps"));
}

}  // namespace

Result<ModelConfig> config_of_json(std::string_view config_json,
                                   std::string_view generation_config_json) {
  auto config = parse_json(config_json, kMostConfigBytes);
  if (!config.ok()) return config.status().within("config.json");
  json generation = json::object();
  if (!generation_config_json.empty()) {
    auto parsed = parse_json(generation_config_json, kMostConfigBytes);
    if (!parsed.ok()) return parsed.status().within("generation_config.json");
    generation = parsed.take();
  }
  JsonKeys keys(*config), generation_keys(generation);
  ModelConfig c;
  c.architecture = keys.text("model_type", "");
  if (!keys.status().ok()) return keys.status().within("config.json");
  auto family = find_family(c.architecture);
  if (!family.ok()) return family.status().within("config.json");
  c.name = keys.text("_name_or_path", "");
  read_dimensions(keys, c);
  if (std::string act = keys.text("hidden_act", "silu"); act != "silu") {
    keys.fail("hidden_act", "is '" + shown(act) + "'; only silu is supported");
  }
  read_rope(keys, c);
  c.sliding_window = window_of(keys, **family, c.n_layers);
  c.tied_head = keys.boolean("tie_word_embeddings", false);
  c.tap_layers = tap_layers_of(keys);
  if (keys.boolean("norm_before_residual", false))
    keys.fail("norm_before_residual",
              "is true; heads whose residual is normalised are not supported");
  c.generation = generation_of(keys, generation_keys);
  if (!keys.status().ok()) return keys.status().within("config.json");
  if (!generation_keys.status().ok()) {
    return generation_keys.status().within("generation_config.json");
  }
  stretch_context(c);
  if (Status s = check_config(c); !s.ok()) return s.within("config.json");
  return c;
}

}  // namespace pf
