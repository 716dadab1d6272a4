#include "engine/draft_models.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "model/lora.h"

namespace pf {
namespace {

constexpr int64_t kWindowTokens = 4096;  // of a draft that cannot see the whole text
constexpr int32_t kWindows = 16;         // full ones at a time; short texts take less of the pool

std::string number(double x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

// Of --draft-lora [NAME=]FOLDER.
struct LoraOption {
  std::string name, folder;
  explicit LoraOption(const std::string& value) : folder(value) {
    if (size_t equals = value.find('='); equals != std::string::npos) {
      name = value.substr(0, equals);
      folder = value.substr(equals + 1);
    }
  }
};

// Merges --draft-lora into a draft that it is for.
Status add_lora(const EngineOptions& o, Content content, DraftModel* d) {
  const LoraOption lora(o.draft_lora);
  if (o.draft_lora.empty() || d->is_head() || (!lora.name.empty() && lora.name != d->name))
    return {};
  Result<LoraAdapter> adapter = read_lora(lora.folder);
  if (!adapter.ok()) return adapter.status().within("--draft-lora");
  if (Status s = merge_lora(*adapter, content, &d->model); !s.ok())
    return s.within("--draft-lora " + lora.folder + " does not fit " + d->from.path);
  d->has_lora = true;
  d->notes.push_back("the LoRA adapter " + lora.folder + " is merged into " +
                     std::to_string(adapter->matrices.size() + adapter->whole.size()) +
                     " of its tensors");
  return {};
}

// What is wrong with the draft's tokens; empty: nothing. Fills the vocabulary.
std::string match_tokens(const Model& target, DraftModel* d) {
  using Tokens = DraftOption::Tokens;
  int64_t V = target.config.vocabulary_size, own = d->model.config.vocabulary_size;
  bool by_target = d->model.head_kind == HeadKind::kMedusa || d->model.shares_embedding ||
                   d->model.shares_head || !d->model.head_tokens.empty();
  switch (d->from.tokens) {
    case Tokens::kUnknown:
      if (by_target) return "";
      if (own == V) {
        d->notes.push_back("no tokenizer of its own: its " + std::to_string(V) +
                           " tokens are taken for the target's");
        return "";
      }
      return "no vocabulary map: the draft has no tokenizer of its own, and vocab_size " +
             std::to_string(own) + " where the target has " + std::to_string(V);
    case Tokens::kForeign:
      return "no vocabulary map: " + d->from.why_foreign;
    case Tokens::kMapped:
      if (by_target)
        return "no vocabulary map: the draft names the target's tokens, but its tokenizer is "
               "another";
      if (static_cast<int64_t>(d->from.vocabulary.to_target.size()) > own)
        return "the draft's tokenizer has " + std::to_string(d->from.vocabulary.to_target.size()) +
               " tokens, but its model knows " + std::to_string(own);
      d->vocabulary = std::move(d->from.vocabulary);
      d->vocabulary.fit(own, V);
      return "";
    case Tokens::kEqual:
      if (by_target || own == V) return "";
      if (own < V) d->n_known = static_cast<int32_t>(own);
      if (own > V) {  // it shall not say what the target has no logit for
        Tensor& head = d->model.head;
        head.shape[0] = V;
        head.data = head.data.first(static_cast<size_t>(V * row_bytes(head.type, head.cols())));
      }
      d->notes.push_back("vocab_size " + std::to_string(own) + " where the target has " +
                         std::to_string(V) + ": the rest is padding");
      return "";
  }
  return "";
}

}  // namespace

Result<DraftModel> load_draft(const EngineOptions& o, const DraftOption& option, Content content,
                              const Model& target) {
  DraftModel d;
  d.from = option;
  if (option.path == "self") {
    int64_t n = o.draft_layers > 0 ? o.draft_layers : target.config.n_layers;
    Result<Model> self = first_layers(target, static_cast<int>(n));
    if (!self.ok()) return self.status().within("--draft-layers " + std::to_string(n));
    d.model = self.take();
    d.name = option.name.empty() ? "model" : option.name;
    if (Status s = add_lora(o, content, &d); !s.ok()) return s;
    return d;
  }
  Result<Model> loaded = load_model(option.path, Role::kDraft, content);
  if (!loaded.ok()) return loaded.status();
  d.model = loaded.take();
  if (o.draft_rope_theta > 0 && d.model.medusa.empty())
    d.model.config.rope_theta = o.draft_rope_theta;
  d.name = !option.name.empty() ? option.name : d.kind();
  if (Status s = add_lora(o, content, &d); !s.ok()) return s;
  std::string wrong = check_fits(d.model, target).message(), tokens = match_tokens(target, &d);
  if (content == Content::kShapes && option.tokens == DraftOption::Tokens::kUnknown &&
      !tokens.empty())
    d.notes.push_back(std::exchange(tokens, "") + "; it will need one");
  if (!wrong.empty() && !tokens.empty()) wrong += "; ";
  if (wrong += tokens; !wrong.empty()) return invalid(wrong).within(option.path);
  if (d.model.config.rope_theta != target.config.rope_theta && d.model.config.rope_theta > 0)
    d.notes.push_back("rope_theta " + number(d.model.config.rope_theta) + " where the target has " +
                      number(target.config.rope_theta) + ": each turns by its own");
  if (!d.vocabulary.empty()) {
    auto n = std::count_if(d.vocabulary.to_target.begin(), d.vocabulary.to_target.end(),
                           [](int32_t t) { return t >= 0; });
    d.notes.push_back("a tokenizer of its own: " + std::to_string(n) + " of " +
                      std::to_string(d.vocabulary.to_target.size()) + " tokens are mapped");
  }
  return d;
}

Status check_lora_taken(const EngineOptions& o, const std::vector<DraftModel>& drafts) {
  if (o.draft_lora.empty() || drafts.empty()) return {};
  auto n = std::count_if(drafts.begin(), drafts.end(), [](auto& d) { return d.has_lora; });
  if (n == 1) return {};
  const std::string name = LoraOption(o.draft_lora).name;
  return invalid("--draft-lora " + o.draft_lora +
                 (n > 1          ? ": which draft is it for? say it, --draft-lora NAME=FOLDER"
                  : name.empty() ? ": an adapter is for a draft model, and there are only heads"
                                 : ": no draft model is called '" + name + "'"));
}

Result<DraftPlace> place_draft(const EngineOptions& o, int64_t max_context, bool same_device,
                               DraftModel* d) {
  int64_t own = d->model.config.max_context, limit = std::min(o.max_prefix_len, own);
  DraftPlace place;
  if (d->model.head_kind == HeadKind::kMedusa) return place.in_tables = false, place;
  place.in_tables = same_device && d->vocabulary.empty();
  place.overlaps = !same_device;
  place.max_context = std::min(limit, max_context);
  if (d->is_head()) return place;  // its plane fills whatever is drafted
  if (place.in_tables && limit >= max_context) return place;
  place.window_tokens = std::min({kWindowTokens, limit, max_context});
  if (place.window_tokens < DraftWindows::kLeastTokens) {
    if (place.in_tables) return place.window_tokens = 0, place;  // it falls silent there
    return invalid(d->from.path + ": a window of " + std::to_string(place.window_tokens) +
                   " tokens is too short to draft from; " +
                   std::to_string(DraftWindows::kLeastTokens) + " are needed");
  }
  int64_t n_each = (place.window_tokens + o.block_size - 1) / o.block_size;
  place.n_window_blocks =
      static_cast<int32_t>(n_each * std::min<int64_t>(kWindows, o.max_num_seqs));
  if (place.in_tables)
    d->notes.push_back((own < max_context ? "a context of " + std::to_string(own) + " tokens"
                                          : "--max-prefix-len " + std::to_string(limit)) +
                       " where the target has " + std::to_string(max_context) +
                       ": longer texts are seen through a window of " +
                       std::to_string(place.window_tokens));
  return place;
}

}  // namespace pf
