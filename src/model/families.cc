#include "model/families.h"

#include <cstdio>
#include <cstring>
#include <limits>

#include "model/json_file.h"

namespace pf {
namespace {

constexpr Family kFamilies[] = {
    {"llama", 10000, 0, false, true, "llama"},
    {"qwen2", 10000, 0, true, false, "qwen2"},
    {"mistral", 10000, 4096, false, true, "llama"},
};

constexpr LayerTensorName kLayerTensors[] = {
    {&LayerWeights::attention_norm, "attn_norm.weight", "input_layernorm.weight"},
    {&LayerWeights::q, "attn_q.weight", "self_attn.q_proj.weight"},
    {&LayerWeights::k, "attn_k.weight", "self_attn.k_proj.weight"},
    {&LayerWeights::v, "attn_v.weight", "self_attn.v_proj.weight"},
    {&LayerWeights::q_bias, "attn_q.bias", "self_attn.q_proj.bias"},
    {&LayerWeights::k_bias, "attn_k.bias", "self_attn.k_proj.bias"},
    {&LayerWeights::v_bias, "attn_v.bias", "self_attn.v_proj.bias"},
    {&LayerWeights::o, "attn_output.weight", "self_attn.o_proj.weight"},
    {&LayerWeights::ffn_norm, "ffn_norm.weight", "post_attention_layernorm.weight"},
    {&LayerWeights::gate, "ffn_gate.weight", "mlp.gate_proj.weight"},
    {&LayerWeights::up, "ffn_up.weight", "mlp.up_proj.weight"},
    {&LayerWeights::down, "ffn_down.weight", "mlp.down_proj.weight"},
};

// NaN fails, as it fails every comparison.
Status within(const char* what, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  char text[160];
  std::snprintf(text, sizeof text, "%s is %g; it must be from %g to %g", what, value, least, most);
  return invalid(text);
}

Status check_rope_scaling(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  using Kind = RopeScaling::Kind;
  if (!s.frequency_factors.empty()) {
    if (static_cast<int64_t>(s.frequency_factors.size()) != c.head_width / 2) {
      return invalid("the RoPE frequency factors are not one per pair of a head's dimensions");
    }
    for (float f : s.frequency_factors) {
      if (Status bad = within("a RoPE frequency factor", f, 1e-6, 1e6); !bad.ok()) return bad;
    }
  }
  if (s.kind == Kind::kNone) return {};
  if (Status bad = within("the RoPE scaling factor", s.factor, 1e-3, 1e6); !bad.ok()) return bad;
  if (s.kind == Kind::kLinear || !s.frequency_factors.empty()) return {};
  Status bad = within("original_max_position_embeddings of the RoPE scaling",
                      static_cast<double>(s.original_max_position), 1, 1e9);
  if (bad.ok() && s.kind == Kind::kLlama3) {
    bad = within("low_freq_factor of the RoPE scaling", s.low_freq_factor, 1e-6, 1e6);
    if (bad.ok() && !(s.high_freq_factor > s.low_freq_factor && s.high_freq_factor < 1e6f)) {
      bad = invalid("high_freq_factor of the RoPE scaling must be above low_freq_factor");
    }
  } else if (bad.ok()) {
    bad = within("beta_slow of the RoPE scaling", s.beta_slow, 1e-6, 1e6);
    if (bad.ok()) bad = within("beta_fast of the RoPE scaling", s.beta_fast, s.beta_slow, 1e6);
    if (bad.ok()) bad = within("attention_factor of the RoPE scaling", s.attention_factor, 0, 1e6);
    if (bad.ok()) bad = within("ext_factor of the RoPE scaling", s.ext_factor, 0, 1);
  }
  return bad;
}

// The makers' advice must be what a request may say, or every request without its own would fail.
Status check_generation(const GenerationDefaults& g, int64_t vocabulary) {
  Status bad;
  auto range = [&](const char* what, double value, double least, double most) {
    if (bad.ok()) bad = within(what, value, least, most);
  };
  range("the default temperature", g.temperature.value_or(1), 0, 100);
  range("the default top_p", g.top_p.value_or(1), 1e-9, 1);
  range("the default min_p", g.min_p.value_or(0), 0, 1);
  range("the default repetition_penalty", g.repetition_penalty.value_or(1), 1e-3, 1e3);
  range("the default top_k", g.top_k.value_or(0), -1, INT32_MAX);
  range("the default max_new_tokens", g.max_new_tokens.value_or(1), 1, INT32_MAX);
  double last = vocabulary > 0 ? static_cast<double>(vocabulary - 1) : INT32_MAX;
  for (int32_t id : g.eos_token_ids) range("an end-of-text token id", id, 0, last);
  range("the begin-of-text token id", g.bos_token_id.value_or(0), 0, last);
  return bad;
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

Result<const Family*> find_family(std::string_view name) {
  std::string known;
  for (const Family& f : kFamilies) {
    if (f.name == name) return &f;
    known += (known.empty() ? "" : ", ") + std::string(f.name);
  }
  return invalid("the architecture '" + shown(name) + "' is not supported (known: " + known + ")");
}

std::span<const LayerTensorName> layer_tensor_names() { return kLayerTensors; }

std::string layer_tensor_name(Naming naming, int64_t layer, const LayerTensorName& name) {
  bool gguf = naming == Naming::kGguf;
  return (gguf ? "blk." : "model.layers.") + std::to_string(layer) + "." +
         std::string(gguf ? name.gguf : name.hugging_face);
}

OuterNames outer_names(Naming naming) {
  OuterNames names{"token_embd.weight", "output_norm.weight", "output.weight", "d2t", "fc.weight",
                   "fc.bias",           "enorm.weight",       "hnorm.weight"};
  if (naming == Naming::kHuggingFace) {
    names.embedding = "model.embed_tokens.weight";
    names.final_norm = "model.norm.weight";
    names.head = "lm_head.weight";
  }
  return names;
}

int64_t interleaved_row_of_half(int64_t row, int64_t head_width) {
  int64_t half = head_width / 2;
  return row % half * 2 + row / half;
}

int64_t half_row_of_interleaved(int64_t row, int64_t head_width) {
  return row % 2 * (head_width / 2) + row / 2;
}

Tensor reorder_head_rows(const Tensor& t, int64_t head_width,
                         int64_t (*source_row)(int64_t, int64_t), ModelStorage& storage) {
  // A bias is one value per row.
  int64_t n_rows = t.shape.front();
  size_t bytes = t.data.size() / static_cast<size_t>(n_rows);
  std::span<std::byte> to = storage.allocate(t.data.size());
  for (int64_t row = 0; row < n_rows; ++row) {
    int64_t head = row / head_width * head_width;
    int64_t from = head + source_row(row - head, head_width);
    std::memcpy(to.data() + static_cast<size_t>(row) * bytes,
                t.data.data() + static_cast<size_t>(from) * bytes, bytes);
  }
  return {t.name, t.type, t.shape, to};
}

Status check_config(const ModelConfig& c) {
  const struct {
    const char* what;
    int64_t value, least, most;
  } kRanges[] = {
      {"the number of layers", c.n_layers, 1, 4096},
      {"the model width", c.width, 1, 1 << 20},
      {"the feed-forward width", c.ffn_width, 1, 1 << 22},
      {"the number of attention heads", c.n_heads, 1, 1 << 14},
      {"the number of key/value heads", c.n_kv_heads, 1, c.n_heads},
      {"the head width", c.head_width, 2, 1 << 12},
      {"the vocabulary", c.vocabulary_size, 0, std::numeric_limits<int32_t>::max()},
      {"the context length", c.max_context, 1, std::numeric_limits<int32_t>::max()},
      {"the sliding window", c.sliding_window, 0, std::numeric_limits<int32_t>::max()},
  };
  for (const auto& r : kRanges) {
    if (r.value >= r.least && r.value <= r.most) continue;
    return invalid(std::string(r.what) + " is " + std::to_string(r.value) + "; it must be from " +
                   std::to_string(r.least) + " to " + std::to_string(r.most));
  }
  if (c.n_heads % c.n_kv_heads != 0) {
    return invalid("the " + std::to_string(c.n_heads) + " attention heads do not divide among " +
                   std::to_string(c.n_kv_heads) + " key/value heads");
  }
  if (c.head_width % 2 != 0) return invalid("the head width is odd; RoPE turns pairs");
  Status bad;
  if (c.rope_theta != 0) bad = within("rope_theta", c.rope_theta, 1.000001, 1e12);
  if (bad.ok()) bad = within("the norm's epsilon", c.norm_epsilon, 1e-12, 0.1);
  if (bad.ok()) bad = check_generation(c.generation, c.vocabulary_size);
  return bad.ok() ? check_rope_scaling(c) : bad;
}

}  // namespace pf
