#include "engine/open_models.h"

#include <algorithm>

namespace pf {
namespace {

bool wants(const std::vector<std::string>& names, const std::string& drafter) {
  return std::find(names.begin(), names.end(), drafter) != names.end();
}

constexpr std::string_view kKnownDrafters[] = {"ngram", "suffix", "early-exit", "model", "eagle"};

bool is_off(const EngineOptions& o) {
  return o.speculation.empty() || o.speculation == std::vector<std::string>{"off"};
}
bool is_auto(const EngineOptions& o) { return o.speculation == std::vector<std::string>{"auto"}; }

// Whether --draft is opened at all.
bool needs_drafts(const EngineOptions& o) {
  return !is_off(o) &&
         (is_auto(o) || wants(o.speculation, "model") || wants(o.speculation, "eagle"));
}

Status check_speculation(const EngineOptions& o) {
  if (is_off(o) || is_auto(o)) return {};
  for (const std::string& name : o.speculation) {
    if (std::find(std::begin(kKnownDrafters), std::end(kKnownDrafters), name) !=
        std::end(kKnownDrafters))
      continue;
    std::string known = "off, auto";
    for (std::string_view k : kKnownDrafters) known += ", " + std::string(k);
    return invalid("--speculation " + name + ": no such drafter; known: " + known);
  }
  return {};
}

Status check_options(const EngineOptions& o) {
  if (o.max_num_batched_tokens < o.max_num_seqs)
    return invalid("--max-num-batched-tokens " + std::to_string(o.max_num_batched_tokens) +
                   " is below --max-num-seqs " + std::to_string(o.max_num_seqs) +
                   ": every running sequence needs a row");
  return {};
}

// `auto` becomes what is there: n-grams first, then the head or the model that was given.
Result<std::vector<std::string>> drafters_of(const EngineOptions& o, const OpenModels& models) {
  if (is_off(o)) return std::vector<std::string>{};
  if (is_auto(o)) {
    std::vector<std::string> names = {"ngram"};
    if (models.head) names.push_back("eagle");
    if (models.draft) names.push_back("model");
    return names;
  }
  int64_t n_layers = models.target.config.n_layers;
  if (wants(o.speculation, "early-exit") && (o.draft_layers < 1 || o.draft_layers >= n_layers))
    return invalid("--speculation early-exit needs --draft-layers in 1.." +
                   std::to_string(n_layers - 1) + "; the model has " + std::to_string(n_layers) +
                   " (inspect --exit-layers measures them)");
  if (wants(o.speculation, "model") && !models.draft)
    return invalid(
        models.head ? "--speculation model: " + models.head_from.path +
                          " is a head over hidden states; name eagle, or give a model with --draft"
                    : "--speculation model needs a draft model: give one with --draft PATH");
  if (wants(o.speculation, "eagle") && !models.head)
    return invalid(models.draft
                       ? "--speculation eagle: " + models.draft_from.path +
                             " is a model of its own; name model, or give a head with --draft"
                       : "--speculation eagle needs a head: give one with --draft PATH");
  return o.speculation;
}

Status load_draft(const EngineOptions& o, const DraftOption& option, Content content,
                  OpenModels* out) {
  Model draft;
  if (option.path == "self") {
    int64_t n = o.draft_layers > 0 ? o.draft_layers : out->target.config.n_layers;
    Result<Model> self = first_layers(out->target, static_cast<int>(n));
    if (!self.ok()) return self.status().within("--draft-layers " + std::to_string(n));
    draft = self.take();
  } else {
    Result<Model> loaded = load_model(option.path, Role::kDraft, content);
    if (!loaded.ok()) return loaded.status();
    draft = loaded.take();
    if (o.draft_rope_theta > 0) draft.config.rope_theta = o.draft_rope_theta;
    if (Status s = check_fits(draft, out->target); !s.ok()) return s.within(option.path);
  }
  bool is_head = draft.takes_hidden();
  std::optional<Model>& place = is_head ? out->head : out->draft;
  if (place)
    return invalid("--draft " + option.path + ": a second draft " + (is_head ? "head" : "model") +
                   "; one of each kind can be resident");
  place = std::move(draft);
  (is_head ? out->head_from : out->draft_from) = option;
  return {};
}

Status load_models(const EngineOptions& o, Content content, OpenModels* out) {
  Result<Model> target = load_model(o.model, Role::kTarget, content);
  if (!target.ok()) return target.status();
  out->target = target.take();
  if (Status s = check_stands_alone(out->target); !s.ok()) return s.within(o.model);
  if (!needs_drafts(o)) return {};
  for (const DraftOption& option : o.drafts)
    if (Status s = load_draft(o, option, content, out); !s.ok()) return s;
  return {};
}

}  // namespace

std::vector<ResidentModel> OpenModels::residents(const EngineOptions& o, Device device) const {
  ResidentModel r;
  r.block_tokens = o.block_size;
  r.max_rows = o.max_num_batched_tokens;
  r.name = "target";
  r.model = &target;
  r.weights = target_weights(o, device);
  r.keep_hidden = head.has_value();
  std::vector<ResidentModel> all = {r};
  r.weights = draft_weights(o, device);
  r.keep_hidden = false;
  for (const std::optional<Model>* m : {&draft, &head}) {
    if (!*m) continue;
    r.name = m == &draft ? "draft model" : "draft head";
    r.model = &**m;
    r.embedding_of = r.model->shares_embedding ? &target : nullptr;
    all.push_back(r);
  }
  return all;
}

Result<OpenModels> open_models(const EngineOptions& o, Content content) {
  if (Status s = check_options(o); !s.ok()) return s;
  if (Status s = check_speculation(o); !s.ok()) return s;
  OpenModels models;
  if (Status s = load_models(o, content, &models); !s.ok()) return s;
  Result<std::vector<std::string>> names = drafters_of(o, models);
  if (!names.ok()) return names.status();
  models.drafters = names.take();
  // What is given and not named is not made.
  if (!wants(models.drafters, "model")) models.draft.reset();
  if (!wants(models.drafters, "eagle")) models.head.reset();
  return models;
}

}  // namespace pf
