#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "model/families.h"

namespace pf {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// The tensors of a file by name; each is taken at most once.
class Pile {
 public:
  explicit Pile(std::vector<Tensor> tensors) {
    for (Tensor& t : tensors) {
      std::string name = t.name;
      tensors_.emplace(std::move(name), std::move(t));
    }
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }

  Tensor take(const std::string& name) {
    auto node = tensors_.extract(name);
    return node ? std::move(node.mapped()) : Tensor{};
  }

  // A weight of exactly this shape; vectors (norms, biases) must be finite.
  Status take_weight(const std::string& name, std::vector<int64_t> shape, Tensor* out) {
    Tensor t = take(name);
    if (t.shape.empty()) return invalid("tensor '" + name + "' is missing");
    if (is_integer(t.type)) {
      return invalid("tensor '" + name + "' has type " + std::string(type_name(t.type)) +
                     "; weights are floating-point or quantised");
    }
    if (t.shape != shape) {
      return invalid("tensor '" + name + "' has shape " + shape_text(t.shape) +
                     "; the configuration asks for " + shape_text(shape));
    }
    if (shape.size() == 1 && !rows_are_finite(t, 0, 1)) {
      return invalid("tensor '" + name + "' holds NaN or infinity");
    }
    *out = std::move(t);
    return {};
  }

  // The name of a tensor that nobody took and that would change the result; empty if none.
  std::string leftover() const {
    std::string least;
    for (const auto& [name, t] : tensors_) {
      if (name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight") continue;
      if (least.empty() || name < least) least = name;
    }
    return least;
  }

 private:
  std::unordered_map<std::string, Tensor> tensors_;
};

bool has_q_bias(const Pile& pile, Naming naming) {
  for (const LayerTensorName& n : layer_tensor_names()) {
    if (n.place == &LayerWeights::q_bias) return pile.has(layer_tensor_name(naming, 0, n));
  }
  return false;
}

Status take_layer(Pile& pile, Naming naming, int64_t layer, const ModelConfig& c,
                  LayerWeights* out) {
  for (const LayerTensorName& n : layer_tensor_names()) {
    if (is_bias(n.place) && !c.qkv_bias) continue;
    Status s = pile.take_weight(layer_tensor_name(naming, layer, n), shape_in_layer(n.place, c),
                                &(out->*n.place));
    if (!s.ok()) return s;
  }
  return {};
}

// d2t: one absolute token id of the target per row of the head, no id twice.
Status read_head_tokens(const Tensor& t, int64_t vocabulary, std::vector<int32_t>* out) {
  std::string who = "tensor '" + t.name + "' ";
  bool wide = t.type == TensorType::kI64;
  if ((t.type != TensorType::kI32 && !wide) || t.shape.size() != 1) {
    return invalid(who + "must be a vector of I32 or I64");
  }
  std::unordered_set<int64_t> seen;
  for (int64_t i = 0; i < t.cols(); ++i) {
    int64_t id = 0;
    int32_t narrow = 0;
    if (wide) {
      std::memcpy(&id, t.data.data() + i * 8, 8);
    } else {
      std::memcpy(&narrow, t.data.data() + i * 4, 4);
      id = narrow;
    }
    if (id < 0 || id > INT32_MAX || (vocabulary > 0 && id >= vocabulary)) {
      return invalid(who + "holds " + std::to_string(id) + ", which is no token id");
    }
    if (!seen.insert(id).second) {
      return invalid(who + "holds the token id " + std::to_string(id) + " twice");
    }
    out->push_back(static_cast<int32_t>(id));
  }
  return {};
}

Status take_head(Pile& pile, const OuterNames& names, Model& m) {
  std::string head(names.head), map(names.head_tokens);
  ModelConfig& c = m.config;
  c.n_tokens = m.embedding.empty() ? c.vocabulary_size : m.embedding.rows();
  if (pile.has(map)) {
    Status s = read_head_tokens(pile.take(map), c.n_tokens, &m.head_tokens);
    if (!s.ok()) return s;
    c.tied_head = false;  // a reduced head is a table of its own
    c.vocabulary_size = static_cast<int64_t>(m.head_tokens.size());
  } else {
    c.vocabulary_size = c.n_tokens;
  }
  if (c.tied_head) {
    if (m.embedding.empty()) return invalid("there is neither an embedding nor a head");
    pile.take(head);  // a copy that some files carry
    m.head = m.embedding;
    return {};
  }
  if (c.vocabulary_size == 0) return invalid("the configuration does not say the vocabulary size");
  return pile.take_weight(head, {c.vocabulary_size, c.width}, &m.head);
}

// A file may say its vocabulary only by the rows of its embedding.
Status check_special_tokens(const ModelConfig& c) {
  std::vector<int32_t> ids = c.generation.eos_token_ids;
  if (c.generation.bos_token_id) ids.push_back(*c.generation.bos_token_id);
  for (int32_t id : ids) {
    if (id >= 0 && (c.n_tokens == 0 || id < c.n_tokens)) continue;
    return invalid("the special token id " + std::to_string(id) + " is beyond the " +
                   std::to_string(c.n_tokens) + " tokens");
  }
  return {};
}

Status take_embedding(Pile& pile, const OuterNames& names, Model& m) {
  std::string name(names.embedding);
  if (!pile.has(name)) {
    m.shares_embedding = true;
    return {};
  }
  Tensor t = pile.take(name);
  ModelConfig& c = m.config;
  std::vector<int64_t> shape = {
      c.vocabulary_size > 0 || t.shape.size() != 2 ? c.vocabulary_size : t.shape[0], c.width};
  Pile one({std::move(t)});
  return one.take_weight(name, shape, &m.embedding);
}

// What an EAGLE head has besides a decoder's tensors.
Status take_features(Pile& pile, const OuterNames& names, Model& m) {
  if (!pile.has(std::string(names.fc))) return {};
  int64_t E = m.config.width;
  Status s = pile.take_weight(std::string(names.fc), {E, 2 * E}, &m.fc);
  if (s.ok()) s = pile.take_weight(std::string(names.embedding_norm), {E}, &m.embedding_norm);
  if (s.ok()) s = pile.take_weight(std::string(names.hidden_norm), {E}, &m.hidden_norm);
  return s;
}

// Heads name their tensors as a model's, without the "model." before most of them.
void name_as_a_model(std::vector<Tensor>* tensors) {
  auto is_fc = [](const Tensor& t) { return t.name == "fc.weight"; };
  if (std::none_of(tensors->begin(), tensors->end(), is_fc)) return;
  for (Tensor& t : *tensors)
    if (t.name.starts_with("layers.") || t.name == "norm.weight" || t.name == "embed_tokens.weight")
      t.name = "model." + t.name;
}

}  // namespace

std::vector<int64_t> shape_in_layer(Tensor LayerWeights::*place, const ModelConfig& c) {
  using W = LayerWeights;
  int64_t q = c.n_heads * c.head_width, kv = c.n_kv_heads * c.head_width;
  if (place == &W::attention_norm || place == &W::ffn_norm) return {c.width};
  if (place == &W::q) return {q, c.width};
  if (place == &W::k || place == &W::v) return {kv, c.width};
  if (place == &W::q_bias) return {q};
  if (place == &W::k_bias || place == &W::v_bias) return {kv};
  if (place == &W::o) return {c.width, q};
  if (place == &W::down) return {c.width, c.ffn_width};
  return {c.ffn_width, c.width};  // gate, up
}

bool is_bias(Tensor LayerWeights::*place) {
  return place == &LayerWeights::q_bias || place == &LayerWeights::k_bias ||
         place == &LayerWeights::v_bias;
}

Result<Model> assemble(ModelConfig config, std::vector<Tensor> tensors, Naming naming,
                       ModelStorage storage, Content content) {
  auto family = find_family(config.architecture);
  if (!family.ok()) return family.status();
  Model m;
  m.config = std::move(config);
  m.storage = std::move(storage);
  ModelConfig& c = m.config;
  if (naming == Naming::kHuggingFace) name_as_a_model(&tensors);
  Pile pile(std::move(tensors));
  OuterNames names = outer_names(naming);
  c.qkv_bias = (*family)->needs_qkv_bias || has_q_bias(pile, naming);
  if (naming == Naming::kGguf) c.tied_head = !pile.has(std::string(names.head));
  Status s = take_embedding(pile, names, m);
  if (s.ok()) s = take_features(pile, names, m);
  if (s.ok()) s = take_head(pile, names, m);
  if (s.ok()) s = check_special_tokens(c);
  if (s.ok()) s = pile.take_weight(std::string(names.final_norm), {c.width}, &m.final_norm);
  for (int64_t i = 0; s.ok() && i < c.n_layers; ++i) {
    s = take_layer(pile, naming, i, c, &m.layers.emplace_back());
  }
  if (!s.ok()) return s;
  if (std::string extra = pile.leftover(); !extra.empty()) {
    return invalid("tensor '" + extra + "' is no part of a " + c.architecture + " model");
  }
  if (content == Content::kWeights && naming == Naming::kGguf && (*family)->gguf_permutes_qk) {
    for (LayerWeights& w : m.layers) {
      for (Tensor* t : {&w.q, &w.k, &w.q_bias, &w.k_bias}) {
        if (t->empty()) continue;
        *t = reorder_head_rows(*t, c.head_width, interleaved_row_of_half, m.storage);
      }
    }
  }
  return m;
}

}  // namespace pf
