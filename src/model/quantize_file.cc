// A model as GGUF, the way llama.cpp writes it: its names, its keys, its interleaved q and k rows
// for the architecture "llama".
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/cpus.h"
#include "base/files.h"
#include "model/families.h"
#include "model/gguf_write.h"
#include "model/quantize.h"

namespace pf {
namespace {

// general.file_type: what most of the weights are.
uint32_t file_type(TensorType type) {
  return type == TensorType::kQ4_0 ? 2 : type == TensorType::kQ4_1 ? 3 : 7;
}

void add_rope(GgufWriter& out, const std::string& arch, const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  using Kind = RopeScaling::Kind;
  if (c.rope_theta > 0) out.add(arch + "rope.freq_base", c.rope_theta);
  if (s.kind == Kind::kNone || s.kind == Kind::kLlama3) return;  // llama3 is a tensor
  out.add(arch + "rope.scaling.type", std::string_view(s.kind == Kind::kYarn ? "yarn" : "linear"));
  out.add(arch + "rope.scaling.factor", s.factor);
  if (s.kind != Kind::kYarn) return;
  out.add(arch + "rope.scaling.original_context_length",
          static_cast<uint32_t>(s.original_max_position));
  out.add(arch + "rope.scaling.yarn_beta_fast", s.beta_fast);
  out.add(arch + "rope.scaling.yarn_beta_slow", s.beta_slow);
  if (s.ext_factor != 1) out.add(arch + "rope.scaling.yarn_ext_factor", s.ext_factor);
  float usual = s.factor > 1 && s.ext_factor != 0 ? 0.1f * std::log(s.factor) + 1 : 1.0f;
  if (s.attention_factor != 0 && s.attention_factor != usual) {
    out.add(arch + "rope.scaling.attn_factor", s.attention_factor / usual);
  }
}

void add_generation(GgufWriter& out, const GenerationDefaults& g) {
  const char* kEnds[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                         "tokenizer.ggml.eom_token_id"};
  for (size_t i = 0; i < std::size(kEnds) && i < g.eos_token_ids.size(); ++i) {
    out.add(kEnds[i], static_cast<uint32_t>(g.eos_token_ids[i]));
  }
  if (g.eos_token_ids.size() > std::size(kEnds)) out.add(kGgufEosTokenIds, g.eos_token_ids);
  if (g.bos_token_id) {
    out.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*g.bos_token_id));
  }
  if (g.temperature) out.add("general.sampling.temp", *g.temperature);
  if (g.top_p) out.add("general.sampling.top_p", *g.top_p);
  if (g.min_p) out.add("general.sampling.min_p", *g.min_p);
  if (g.repetition_penalty) out.add("general.sampling.penalty_repeat", *g.repetition_penalty);
  if (g.top_k) {
    out.add("general.sampling.top_k", static_cast<uint32_t>(std::max(0, *g.top_k)));
  }
}

// A name for a model whose files have none: "x" for x.gguf and for x/model.gguf.
std::string name_from(const std::string& path) {
  std::error_code error;
  std::filesystem::path file = std::filesystem::absolute(path, error);
  return (file.stem() == "model" ? file.parent_path().filename() : file.stem()).string();
}

// What config.json can say and GGUF has no key for.
Status check_expressible(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  if (s.kind == RopeScaling::Kind::kYarn && !s.truncate) {
    return invalid("YaRN with 'truncate' false cannot be written as GGUF");
  }
  if (s.kind == RopeScaling::Kind::kLlama3 && c.rope_theta == 0) {
    return invalid("rope_theta is missing; without it llama3 RoPE scaling cannot be written");
  }
  return {};
}

void add_config(GgufWriter& out, const std::string& name, const Family& family,
                const ModelConfig& c) {
  auto u32 = [](int64_t v) { return static_cast<uint32_t>(v); };
  std::string arch = std::string(family.gguf_name) + ".";
  out.add("general.architecture", family.gguf_name);
  out.add("general.type", std::string_view("model"));
  out.add("general.name", std::string_view(c.name.empty() ? name : c.name));
  out.add(arch + "block_count", u32(c.n_layers));
  out.add(arch + "context_length", u32(c.max_context));
  out.add(arch + "embedding_length", u32(c.width));
  out.add(arch + "feed_forward_length", u32(c.ffn_width));
  out.add(arch + "attention.head_count", u32(c.n_heads));
  out.add(arch + "attention.head_count_kv", u32(c.n_kv_heads));
  out.add(arch + "attention.key_length", u32(c.head_width));
  out.add(arch + "attention.value_length", u32(c.head_width));
  out.add(arch + "rope.dimension_count", u32(c.head_width));
  out.add(arch + "attention.layer_norm_rms_epsilon", c.norm_epsilon);
  if (c.sliding_window > 0) out.add(arch + "attention.sliding_window", u32(c.sliding_window));
  if (c.n_tokens > 0) out.add(arch + "vocab_size", u32(c.n_tokens));
  if (!c.tap_layers.empty()) out.add(kGgufTapLayers, c.tap_layers);
  add_rope(out, arch, c);
  add_generation(out, c.generation);
}

// The metadata of a GGUF input, but for what says how it was stored.
void carry_metadata(GgufWriter& out, const GgufFile& in) {
  for (const GgufEntry& e : in.entries()) {
    if (e.key == "general.alignment" || e.key == kGgufInt4Group || e.key.starts_with("split."))
      continue;
    out.add(e);
  }
}

// Llama 3's stretched frequencies as GGUF has them: a vector of divisors. Empty = none needed.
std::vector<float> frequency_factors(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  if (!s.frequency_factors.empty()) return s.frequency_factors;
  if (s.kind != RopeScaling::Kind::kLlama3) return {};
  ModelConfig plain = c;
  plain.rope_scaling = {};
  std::vector<float> above = rope_frequencies(plain).inverse, out;
  std::vector<float> below = rope_frequencies(c).inverse;
  for (size_t i = 0; i < above.size(); ++i) out.push_back(above[i] / below[i]);
  return out;
}

// What a head over hidden states has besides a decoder's tensors, in the order of all_tensors.
std::vector<std::pair<std::string_view, const Tensor*>> head_tensors(const Model& m,
                                                                     const OuterNames& names) {
  std::vector<std::pair<std::string_view, const Tensor*>> all = {
      {names.embedding_norm, &m.embedding_norm},
      {names.hidden_norm, &m.hidden_norm},
      {names.fc, &m.fc},
      {names.fc_bias, &m.fc_bias}};
  std::erase_if(all, [](const auto& entry) { return entry.second->empty(); });
  return all;
}

// Adds tensors of the model under GGUF's names; copies made on the way live in `storage`.
void add_tensors(GgufWriter& out, const Model& m, const Family& family, ModelStorage& storage) {
  OuterNames names = outer_names(Naming::kGguf);
  auto bytes_of = [](const auto& v) { return std::as_bytes(std::span(v)); };
  auto own = [&](std::span<const std::byte> bytes) {
    std::span<std::byte> copy = storage.allocate(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.begin());
    return copy;
  };
  if (!m.embedding.empty()) out.add(std::string(names.embedding), m.embedding);
  for (auto [name, tensor] : head_tensors(m, names)) out.add(std::string(name), *tensor);
  if (auto factors = frequency_factors(m.config); !factors.empty()) {
    auto n = static_cast<int64_t>(factors.size());
    out.add("rope_freqs.weight", {"", TensorType::kF32, {n}, own(bytes_of(factors))});
  }
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const LayerWeights& w = m.layers[i];
    for (const LayerTensorName& n : layer_tensor_names()) {
      const Tensor& t = w.*n.place;
      if (t.empty()) continue;
      std::string name = layer_tensor_name(Naming::kGguf, static_cast<int64_t>(i), n);
      bool turned = n.place == &LayerWeights::q || n.place == &LayerWeights::k ||
                    n.place == &LayerWeights::q_bias || n.place == &LayerWeights::k_bias;
      out.add(name,
              turned && family.gguf_permutes_qk
                  ? reorder_head_rows(t, m.config.head_width, half_row_of_interleaved, storage)
                  : t);
    }
  }
  if (!m.final_norm.empty()) out.add(std::string(names.final_norm), m.final_norm);
  if (!m.config.tied_head && !m.head.empty()) out.add(std::string(names.head), m.head);
  if (m.head_tokens.empty()) return;
  auto n = static_cast<int64_t>(m.head_tokens.size());
  out.add(std::string(names.head_tokens),
          {"", TensorType::kI32, {n}, own(bytes_of(m.head_tokens))});
}

// What the file calls its tensors, for the report.
void rename_for_report(QuantizeReport& report, const Model& m) {
  OuterNames names = outer_names(Naming::kGguf);
  std::vector<std::string> order;
  if (!m.embedding.empty()) order.emplace_back(names.embedding);
  for (auto [name, tensor] : head_tensors(m, names)) order.emplace_back(name);
  for (size_t i = 0; i < m.layers.size(); ++i) {
    for (const LayerTensorName& n : layer_tensor_names()) {
      if ((m.layers[i].*n.place).empty()) continue;
      order.push_back(layer_tensor_name(Naming::kGguf, static_cast<int64_t>(i), n));
    }
  }
  if (!m.final_norm.empty()) order.emplace_back(names.final_norm);
  if (!m.config.tied_head && !m.head.empty()) order.emplace_back(names.head);
  for (size_t i = 0; i < report.tensors.size(); ++i) report.tensors[i].name = order[i];
}

}  // namespace

namespace {

namespace fs = std::filesystem;

// Whether two paths are one file, through links of any kind.
bool is_same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// A file of a model's folder other than a GGUF, which may be an earlier result.
bool is_file_of_folder(const fs::path& folder, const fs::path& out) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() != ".gguf" && is_same_file(at->path(), out)) return true;
  return false;
}

// The result is renamed over `out`: that must be neither the source nor a link, whose place the
// new file would take while what it points to stays as it was.
Status check_output(const std::string& in, const Model& source, const std::string& out) {
  std::error_code error;
  if (is_same_file(in, out) || is_same_file(source.gguf_path, out) || is_file_of_folder(in, out))
    return invalid(out + " is a file of the source " + in +
                   ", which it would replace; name another");
  if (fs::is_symlink(out, error))
    return invalid(out + " is a symbolic link to " + fs::read_symlink(out, error).string() +
                   "; name the file itself, or remove the link");
  if (Status s = check_can_write(out); !s.ok()) return s;
  if (fs::exists(out, error) && !fs::is_regular_file(out, error))
    return invalid(out + " is no regular file; name one");
  return {};
}

}  // namespace

Result<QuantizeReport> quantize_file(const std::string& in, const std::string& out, TensorType type,
                                     int n_threads, int int4_group) {
  auto source = load_model(in, Role::kDraft);
  if (!source.ok()) return source.status();
  if (Status s = check_output(in, *source, out); !s.ok()) return s;
  if (!source->medusa.empty())
    return invalid(in +
                   ": Medusa heads are not written as GGUF; they are quantised at load "
                   "(--draft-quantization)");
  ThreadPool pool(n_threads > 0 ? std::min(n_threads, n_usable_cpus()) : n_usable_cpus());
  QuantizeReport report;
  QuantizeTypes types = default_types(*source, type);
  types.int4_group = int4_group;
  auto model = quantize_model(*source, types, pool, &report);
  if (!model.ok()) return model.status().within(in);
  auto family = find_family(model->config.architecture);
  if (!family.ok()) return family.status();
  GgufWriter writer;
  if (source->gguf_path.empty()) {
    if (Status s = check_expressible(model->config); !s.ok()) return s.within(in);
    add_config(writer, name_from(out), **family, model->config);
  } else {
    auto gguf = GgufFile::open(source->gguf_path);
    if (!gguf.ok()) return gguf.status();
    carry_metadata(writer, *gguf);
  }
  writer.add("general.file_type", file_type(type));
  if (int4_group != 32) writer.add(kGgufInt4Group, static_cast<uint32_t>(int4_group));
  writer.add("general.quantization_version", uint32_t{2});
  ModelStorage storage;
  add_tensors(writer, *model, **family, storage);
  rename_for_report(report, *model);
  if (Status s = writer.write(out); !s.ok()) return s;
  return report;
}

}  // namespace pf
