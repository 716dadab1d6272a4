#include "model/model.h"

#include <algorithm>
#include <atomic>

#include "model/families.h"

namespace pf {

std::vector<const Tensor*> all_tensors(const Model& model) {
  std::vector<const Tensor*> out;
  auto add = [&](const Tensor& t) {
    if (!t.empty()) out.push_back(&t);
  };
  add(model.embedding);
  for (const Tensor* t : {&model.embedding_norm, &model.hidden_norm, &model.fc, &model.fc_bias})
    add(*t);
  for (const LayerWeights& w : model.layers) {
    for (const LayerTensorName& n : layer_tensor_names()) add(w.*n.place);
  }
  add(model.final_norm);
  if (!model.config.tied_head) add(model.head);  // empty where it is the target's
  for (const MedusaHead& h : model.medusa) {
    for (const MedusaBlock& b : h.blocks) add(b.w), add(b.bias);
    add(h.out);
  }
  return out;
}

Status check_fits(const Model& draft, const Model& target) {
  const ModelConfig &d = draft.config, &t = target.config;
  std::vector<std::string> wrong;
  const bool medusa = draft.head_kind == HeadKind::kMedusa;
  if (!(d.rope_theta > 0) && !medusa)
    wrong.push_back("the draft's rope_theta is missing in its file (--draft-rope-theta sets it)");
  if (draft.shares_embedding && target.embedding.empty())
    wrong.push_back("the target has no embedding for the draft");
  const bool reads_states = draft.head_kind == HeadKind::kEagle || medusa;
  if ((draft.shares_embedding || draft.shares_head || reads_states) && d.width != t.width)
    wrong.push_back("the draft uses the target's " +
                    std::string(reads_states             ? "hidden states"
                                : draft.shares_embedding ? "embedding"
                                                         : "head") +
                    " of width " + std::to_string(t.width) + ", its own width is " +
                    std::to_string(d.width));
  if (medusa && d.vocabulary_size != t.vocabulary_size)
    wrong.push_back("the heads name " + std::to_string(d.vocabulary_size) +
                    " tokens, the target has " + std::to_string(t.vocabulary_size));
  if (auto taps = tap_layers_of(draft, target); !taps.ok())
    wrong.push_back(taps.status().message());
  int32_t last = draft.head_tokens.empty()
                     ? -1
                     : *std::max_element(draft.head_tokens.begin(), draft.head_tokens.end());
  if (last >= t.vocabulary_size)
    wrong.push_back("the draft proposes token " + std::to_string(last) + ", the target has " +
                    std::to_string(t.vocabulary_size) + " tokens");
  if (wrong.empty()) return {};
  std::string all;
  for (const std::string& w : wrong) all += (all.empty() ? "" : "; ") + w;
  return invalid(all);
}

Result<std::vector<int32_t>> tap_layers_of(const Model& head, const Model& target) {
  if (head.head_kind != HeadKind::kEagle3) return std::vector<int32_t>{};
  const int64_t width = target.config.width, n = head.hidden_width() / width,
                L = target.config.n_layers;
  if (n * width != head.hidden_width())
    return invalid("the head reads hidden states of " + std::to_string(head.hidden_width()) +
                   " values in all, no whole number of the target's " + std::to_string(width));
  std::vector<int32_t> taps = head.config.tap_layers;
  // Where nothing is said: low, middle and high, as the published heads were trained.
  if (taps.empty() && n == 3 && L >= 6)
    taps = {2, static_cast<int32_t>(L / 2), static_cast<int32_t>(L - 3)};
  if (static_cast<int64_t>(taps.size()) != n)
    return invalid("the head reads hidden states of " + std::to_string(n) +
                   " layers, its file names " + std::to_string(taps.size()) +
                   " (eagle_aux_hidden_state_layer_ids)");
  for (int32_t layer : taps)
    if (layer < 0 || layer > L)
      return invalid("the head reads the state in front of layer " + std::to_string(layer) +
                     ", the target has " + std::to_string(L) + " layers");
  return taps;
}

Status check_stands_alone(const Model& model) {
  if (!model.shares_embedding && !model.shares_head && model.head_tokens.empty() &&
      !model.takes_hidden())
    return {};
  return invalid(std::string("the model has ") +
                 (model.takes_hidden()     ? "a head's place for another model's hidden states"
                  : model.shares_embedding ? "no embedding"
                                           : "a reduced vocabulary") +
                 ": it is a draft, give it as --draft");
}

int64_t stored_bytes(const Model& model) {
  int64_t bytes = 0;
  for (const Tensor* t : all_tensors(model)) bytes += stored_bytes(*t);
  return bytes;
}

Status check_finite(const Model& model, ThreadPool& pool, Progress* progress) {
  constexpr int64_t kAtOnce = 4 << 20;  // bytes between two counts
  std::vector<const Tensor*> tensors = all_tensors(model);
  // Threads take turns at tensors; the least index that failed is reported, so that the message
  // does not depend on timing.
  std::atomic<size_t> next{0}, bad{tensors.size()};
  pool.run([&](int) {
    for (size_t i; (i = next.fetch_add(1)) < tensors.size();) {
      const Tensor& t = *tensors[i];
      const int64_t each = row_bytes(t.type, t.cols()), n = std::max<int64_t>(1, kAtOnce / each);
      bool finite = true;
      for (int64_t r = 0; r < t.rows() && finite; r += n) {
        const int64_t rows = std::min(n, t.rows() - r);
        finite = rows_are_finite(t, r, rows);
        if (progress) progress->add(rows * each);
      }
      if (finite) continue;
      size_t least = bad.load();
      while (i < least && !bad.compare_exchange_weak(least, i)) {
      }
    }
  });
  if (bad == tensors.size()) return {};
  return invalid("tensor '" + tensors[bad]->name + "' holds NaN or infinity");
}

Result<Model> first_layers(const Model& model, int n) {
  if (n < 1 || n > model.config.n_layers) {
    return invalid("a draft of the first " + std::to_string(n) + " layers: the model has " +
                   std::to_string(model.config.n_layers));
  }
  Model out;
  out.config = model.config;
  out.config.n_layers = n;
  out.embedding = model.embedding;
  out.final_norm = model.final_norm;
  out.head = model.head;
  out.layers.assign(model.layers.begin(), model.layers.begin() + n);
  out.head_tokens = model.head_tokens;
  out.shares_embedding = model.shares_embedding;
  out.gguf_path = model.gguf_path;
  return out;
}

}  // namespace pf
