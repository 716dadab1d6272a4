#include "model/assemble_head.h"
#include "model/families.h"
#include "model/pile.h"

namespace pf {
namespace {

bool has_q_bias(const Pile& pile, Naming naming) {
  for (const LayerTensorName& n : layer_tensor_names()) {
    if (n.place == &LayerWeights::q_bias) return pile.has(layer_tensor_name(naming, 0, n));
  }
  return false;
}

Status take_layer(Pile& pile, Naming naming, int64_t layer, Model& m) {
  const ModelConfig& c = m.config;
  LayerWeights& out = m.layers.emplace_back();
  const bool first_of_3 = layer == 0 && m.head_kind == HeadKind::kEagle3;
  for (const LayerTensorName& n : layer_tensor_names()) {
    if (is_bias(n.place) && !c.qkv_bias) continue;
    std::string name = layer_tensor_name(naming, layer, n);
    if (n.place == &LayerWeights::attention_norm && layer == 0 &&
        (first_of_3 || (has_bare_input(m) && !pile.has(name))))
      continue;
    Status s = pile.take_weight(
        name, shape_in_layer(n.place, c, first_of_3 ? 2 * c.width : c.width), &(out.*n.place));
    if (!s.ok()) return s;
  }
  return {};
}

Status take_head(Pile& pile, const OuterNames& names, Naming naming, Model& m) {
  std::string head(names.head);
  ModelConfig& c = m.config;
  c.n_tokens = m.embedding.empty() ? c.vocabulary_size : m.embedding.rows();
  if (Status s = take_head_tokens(pile, names, naming, &m); !s.ok()) return s;
  if (!m.head_tokens.empty()) {
    c.tied_head = false;  // a reduced head is a table of its own
    c.vocabulary_size = static_cast<int64_t>(m.head_tokens.size());
  } else {
    c.vocabulary_size = c.n_tokens;
  }
  if (m.takes_hidden()) {
    c.tied_head = false;
    m.shares_head = m.head_tokens.empty() && !pile.has(head);
    if (m.shares_head) return {};
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

}  // namespace

std::vector<int64_t> shape_in_layer(Tensor LayerWeights::*place, const ModelConfig& c,
                                    int64_t input) {
  using W = LayerWeights;
  int64_t q = c.n_heads * c.head_width, kv = c.n_kv_heads * c.head_width;
  if (place == &W::attention_norm || place == &W::ffn_norm) return {c.width};
  if (place == &W::q) return {q, input};
  if (place == &W::k || place == &W::v) return {kv, input};
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
  if (naming == Naming::kHuggingFace) name_head_as_model(&tensors);
  Pile pile(std::move(tensors));
  OuterNames names = outer_names(naming);
  c.qkv_bias = (*family)->needs_qkv_bias || has_q_bias(pile, naming);
  if (naming == Naming::kGguf) c.tied_head = !pile.has(std::string(names.head));
  Status s = take_embedding(pile, names, m);
  if (s.ok()) s = take_features(pile, names, naming, &m);
  if (s.ok()) s = take_head(pile, names, naming, m);
  if (s.ok()) s = check_special_tokens(c);
  std::string norm(names.final_norm);
  if (s.ok() && (pile.has(norm) || !has_bare_input(m)))
    s = pile.take_weight(norm, {c.width}, &m.final_norm);
  for (int64_t i = 0; s.ok() && i < c.n_layers; ++i) s = take_layer(pile, naming, i, m);
  if (s.ok()) sort_head(&m);
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
