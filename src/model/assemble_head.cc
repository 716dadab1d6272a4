#include "model/assemble_head.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <unordered_set>

namespace pf {
namespace {

int64_t integer_at(const Tensor& t, int64_t i) {
  int64_t wide = 0;
  int32_t narrow = 0;
  if (t.type == TensorType::kI64) {
    std::memcpy(&wide, t.data.data() + i * 8, 8);
    return wide;
  }
  std::memcpy(&narrow, t.data.data() + i * 4, 4);
  return narrow;
}

// One token id of the target per row of the head, no id twice. `offsets`: the tensor holds what is
// to be added to the row.
Status read_head_tokens(const Tensor& t, int64_t vocabulary, bool offsets,
                        std::vector<int32_t>* out) {
  std::string who = "tensor '" + t.name + "' ";
  if ((t.type != TensorType::kI32 && t.type != TensorType::kI64) || t.shape.size() != 1) {
    return invalid(who + "must be a vector of I32 or I64");
  }
  std::unordered_set<int64_t> seen;
  for (int64_t i = 0; i < t.cols(); ++i) {
    const int64_t value = integer_at(t, i);
    const bool fits = value >= INT32_MIN && value <= INT32_MAX;
    const int64_t id = fits && offsets ? value + i : value;
    if (!fits || id < 0 || id > INT32_MAX || (vocabulary > 0 && id >= vocabulary)) {
      return invalid(who + "holds " + std::to_string(id) + ", which is no token id");
    }
    if (!seen.insert(id).second) {
      return invalid(who + "holds the token id " + std::to_string(id) + " twice");
    }
    out->push_back(static_cast<int32_t>(id));
  }
  return {};
}

// t2d says of each token whether the head has it; it must say what d2t says.
Status check_t2d(const Tensor& t, const std::vector<int32_t>& head_tokens) {
  const auto n = static_cast<int64_t>(
      std::count_if(t.data.begin(), t.data.end(), [](std::byte b) { return b != std::byte{0}; }));
  const bool readable = t.type == TensorType::kI8 && t.shape.size() == 1;
  bool same = readable && n == static_cast<int64_t>(head_tokens.size());
  for (int32_t token : head_tokens)
    same = same && token < t.cols() && t.data[static_cast<size_t>(token)] != std::byte{0};
  if (same) return {};
  return invalid("tensor 't2d' must mark the tokens of 'd2t' in a vector of BOOL");
}

}  // namespace

void name_head_as_model(std::vector<Tensor>* tensors) {
  auto has = [&](std::string_view name) {
    return std::any_of(tensors->begin(), tensors->end(),
                       [&](const Tensor& t) { return t.name == name; });
  };
  if (!has("fc.weight")) return;
  for (Tensor& t : *tensors) {
    if (t.name.starts_with("midlayer.")) t.name = "layers.0." + t.name.substr(9);
    if (t.name.starts_with("layers.") || t.name == "norm.weight" || t.name == "embed_tokens.weight")
      t.name = "model." + t.name;
  }
  const std::string norm = "model.layers.0.hidden_norm.weight";
  if (!has(norm)) return;
  for (Tensor& t : *tensors) {
    if (t.name == norm) t.name = "hnorm.weight";
    if (t.name == "model.layers.0.input_layernorm.weight") t.name = "enorm.weight";
  }
}

Status take_features(Pile& pile, const OuterNames& names, Naming naming, Model* m) {
  const std::string fc(names.fc), bias(names.fc_bias), enorm(names.embedding_norm),
      hnorm(names.hidden_norm);
  if (!pile.has(fc)) return {};
  const int64_t E = m->config.width;
  const std::string q =
      naming == Naming::kGguf ? "blk.0.attn_q.weight" : "model.layers.0.self_attn.q_proj.weight";
  m->head_kind = pile.cols(q) == 2 * E ? HeadKind::kEagle3 : HeadKind::kEagle;
  const bool eagle3 = m->head_kind == HeadKind::kEagle3;
  Status s = pile.take_weight(fc, {E, eagle3 ? pile.cols(fc) : 2 * E}, &m->fc);
  if (s.ok() && pile.has(bias)) s = pile.take_weight(bias, {E}, &m->fc_bias);
  if (!eagle3 && !pile.has(enorm) && !pile.has(hnorm)) return s;
  if (s.ok()) s = pile.take_weight(enorm, {E}, &m->embedding_norm);
  if (s.ok()) s = pile.take_weight(hnorm, {E}, &m->hidden_norm);
  return s;
}

bool has_bare_input(const Model& m) {
  return m.head_kind == HeadKind::kEagle && m.embedding_norm.empty();
}

Status take_head_tokens(Pile& pile, const OuterNames& names, Naming naming, Model* m) {
  const std::string map(names.head_tokens), t2d = "t2d";
  if (!pile.has(map)) {
    if (pile.has(t2d)) return invalid("tensor 't2d' is there without 'd2t'");
    return {};
  }
  const bool offsets = naming == Naming::kHuggingFace && m->head_kind == HeadKind::kEagle3;
  Status s = read_head_tokens(pile.take(map), m->config.n_tokens, offsets, &m->head_tokens);
  if (s.ok() && offsets && pile.has(t2d)) s = check_t2d(pile.take(t2d), m->head_tokens);
  return s;
}

void sort_head(Model* m) {
  std::vector<int32_t>& tokens = m->head_tokens;
  if (std::is_sorted(tokens.begin(), tokens.end())) return;
  std::vector<size_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::sort(rows.begin(), rows.end(), [&](size_t a, size_t b) { return tokens[a] < tokens[b]; });
  const size_t bytes = m->head.data.size() / rows.size();
  std::span<std::byte> to = m->storage.allocate(m->head.data.size());
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(to.data() + i * bytes, m->head.data.data() + rows[i] * bytes, bytes);
  m->head.data = to;
  std::sort(tokens.begin(), tokens.end());
}

}  // namespace pf
