// The config of a GGUF file. Keys are those of the GGUF specification, "ARCH." before most.
#include <algorithm>
#include <cmath>

#include "model/families.h"
#include "model/gguf.h"

namespace pf {
namespace {

// Reads keys and remembers the first that is wrong, so that the caller checks once.
class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  template <class T>
  T need(const std::string& key) {
    if (file_.entry(prefix_ + key) == nullptr) fail(key, "is missing");
    return get<T>(key, T{});
  }

  template <class T>
  T get(const std::string& key, T otherwise) {
    if (file_.entry(prefix_ + key) == nullptr) return otherwise;
    auto v = file_.find<T>(prefix_ + key);
    if (!v) fail(key, "has a wrong type or does not fit");
    return v.value_or(otherwise);
  }

  bool has(const std::string& key) const { return file_.entry(prefix_ + key) != nullptr; }

  void fail(const std::string& key, const std::string& what) {
    if (status_.ok()) status_ = invalid("key '" + prefix_ + key + "' " + what);
  }
  const Status& status() const { return status_; }

 private:
  const GgufFile& file_;
  std::string prefix_;
  Status status_;
};

RopeScaling rope_scaling_of(Keys& keys, int64_t context) {
  RopeScaling s;
  auto type = keys.get<std::string_view>("rope.scaling.type", "");
  s.factor = keys.get<float>("rope.scaling.factor", keys.get<float>("rope.scale_linear", 1));
  s.original_max_position = keys.get<int64_t>("rope.scaling.original_context_length", context);
  if (type == "yarn") {
    s.kind = RopeScaling::Kind::kYarn;
    s.beta_fast = keys.get<float>("rope.scaling.yarn_beta_fast", 32);
    s.beta_slow = keys.get<float>("rope.scaling.yarn_beta_slow", 1);
    s.ext_factor = keys.get<float>("rope.scaling.yarn_ext_factor", 1);
    // llama.cpp multiplies this factor with 0.1 ln(factor) + 1.
    float multiplier = keys.get<float>("rope.scaling.yarn_attn_factor",
                                       keys.get<float>("rope.scaling.attn_factor", 1));
    float logarithmic = s.factor > 1 && s.ext_factor != 0 ? 0.1f * std::log(s.factor) + 1 : 1.0f;
    s.attention_factor = multiplier * logarithmic;
  } else if (type == "linear" || (type.empty() && s.factor != 1)) {
    s.kind = s.factor == 1 ? RopeScaling::Kind::kNone : RopeScaling::Kind::kLinear;
  } else if (!type.empty() && type != "none") {
    keys.fail("rope.scaling.type", "is '" + std::string(type.substr(0, 40)) +
                                       "', which is not supported (none, linear, yarn are)");
  }
  return s;
}

// Llama 3's scaling comes as a tensor of divisors instead of keys.
Status read_frequency_factors(const GgufFile& file, RopeScaling& s) {
  const Tensor* t = file.tensor("rope_freqs.weight");
  if (t == nullptr) return {};
  if (t->type != TensorType::kF32 || t->shape.size() != 1 || t->cols() > 1 << 12) {
    return invalid("tensor 'rope_freqs.weight' is no short F32 vector");
  }
  if (s.kind != RopeScaling::Kind::kNone) {
    return invalid("tensor 'rope_freqs.weight' and key 'rope.scaling.type' contradict each other");
  }
  s.kind = RopeScaling::Kind::kLlama3;
  s.frequency_factors.resize(static_cast<size_t>(t->cols()));
  dequantize_rows(*t, 0, 1, s.frequency_factors.data());
  return {};
}

template <class T>
std::optional<T> optional_key(Keys& keys, const std::string& key) {
  if (!keys.has(key)) return std::nullopt;
  return keys.get<T>(key, T{});
}

// A token id, where the key holds one: writers say "none" with -1.
std::optional<int32_t> token_id(const GgufFile& file, const char* key) {
  auto id = file.find<int32_t>(key);
  return id && *id >= 0 ? id : std::nullopt;
}

GenerationDefaults generation_of(const GgufFile& file, Keys& keys) {
  GenerationDefaults g;
  std::vector<int64_t> ids = file.find_integers(kGgufEosTokenIds).value_or(std::vector<int64_t>{});
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (auto id = token_id(file, key)) ids.push_back(*id);
  }
  for (int64_t id : ids) {
    auto narrow = static_cast<int32_t>(std::clamp<int64_t>(id, -1, INT32_MAX));
    auto& known = g.eos_token_ids;
    if (std::find(known.begin(), known.end(), narrow) == known.end()) known.push_back(narrow);
  }
  g.bos_token_id = token_id(file, "tokenizer.ggml.bos_token_id");
  g.temperature = optional_key<float>(keys, "general.sampling.temp");
  g.top_p = optional_key<float>(keys, "general.sampling.top_p");
  g.min_p = optional_key<float>(keys, "general.sampling.min_p");
  g.top_k = optional_key<int32_t>(keys, "general.sampling.top_k");
  g.repetition_penalty = optional_key<float>(keys, "general.sampling.penalty_repeat");
  return g;
}

// What other models of the same architecture name have and this program does not compute.
void refuse_extensions(Keys& keys, const ModelConfig& c) {
  if (keys.get<int64_t>("expert_count", 0) > 0)
    keys.fail("expert_count", "says mixture of experts, which is not supported");
  if (keys.get<int64_t>("attention.value_length", c.head_width) != c.head_width) {
    keys.fail("attention.value_length", "differs from the key length, which is not supported");
  }
  if (keys.get<int64_t>("rope.dimension_count", c.head_width) != c.head_width) {
    keys.fail("rope.dimension_count", "is not the head width; partial RoPE is not supported");
  }
}

}  // namespace

Result<ModelConfig> config_of_gguf(const GgufFile& file) {
  Keys general(file, "");
  if (general.get<int64_t>("split.count", 0) > 1) {
    return invalid("the file is one part of several; merge them first (llama-gguf-split --merge)");
  }
  ModelConfig c;
  c.architecture = general.need<std::string_view>("general.architecture");
  if (!general.status().ok()) return general.status();
  auto family = find_family(c.architecture);
  if (!family.ok()) return family.status();
  c.name = general.get<std::string_view>("general.name", "");
  Keys keys(file, c.architecture + ".");
  c.n_layers = keys.need<int64_t>("block_count");
  c.width = keys.need<int64_t>("embedding_length");
  c.ffn_width = keys.need<int64_t>("feed_forward_length");
  c.n_heads = keys.need<int64_t>("attention.head_count");
  c.n_kv_heads = keys.get<int64_t>("attention.head_count_kv", c.n_heads);
  c.head_width = keys.get<int64_t>("attention.key_length", c.n_heads > 0 ? c.width / c.n_heads : 0);
  c.max_context = keys.need<int64_t>("context_length");
  c.vocabulary_size = keys.get<int64_t>("vocab_size", 0);
  c.norm_epsilon = keys.need<float>("attention.layer_norm_rms_epsilon");
  c.sliding_window = keys.get<int64_t>("attention.sliding_window", 0);
  c.rope_theta = keys.get<float>("rope.freq_base", 0);
  if (keys.has("rope.freq_base") && !(c.rope_theta > 0)) {
    keys.fail("rope.freq_base", "must be above 0");
  }
  c.rope_scaling = rope_scaling_of(keys, c.max_context);
  refuse_extensions(keys, c);
  c.generation = generation_of(file, general);
  for (int64_t n : file.find_integers(kGgufTapLayers).value_or(std::vector<int64_t>{}))
    c.tap_layers.push_back(static_cast<int32_t>(std::clamp<int64_t>(n, -1, INT32_MAX)));
  c.int4_group = general.get<int32_t>(kGgufInt4Group, 32);
  if (c.int4_group != 32 && c.int4_group != 128)
    general.fail(kGgufInt4Group,
                 "is " + std::to_string(c.int4_group) + "; 32 and 128 are possible");
  Status bad = keys.status().ok() ? general.status() : keys.status();
  if (bad.ok()) bad = read_frequency_factors(file, c.rope_scaling);
  if (bad.ok()) bad = check_config(c);
  if (!bad.ok()) return bad;
  return c;
}

}  // namespace pf
