#include "engine/open_models.h"

#include <algorithm>

#include "backend/cuda/shard.h"
#include "batch/draft_shape.h"
#include "engine/drafter_names.h"
#include "engine/head_rooms.h"

namespace pf {
namespace {

Status check_options(const EngineOptions& o) {
  if (o.max_num_batched_tokens < o.max_num_seqs)
    return invalid("--max-num-batched-tokens " + std::to_string(o.max_num_batched_tokens) +
                   " is below --max-num-seqs " + std::to_string(o.max_num_seqs) +
                   ": every running sequence needs a row");
  if (o.dynamic_alpha.least > o.dynamic_alpha.most)
    return invalid("--alpha-min " + std::to_string(o.dynamic_alpha.least) +
                   " is above --alpha-max " + std::to_string(o.dynamic_alpha.most));
  if (o.dynamic_alpha.least > o.dynamic_alpha.quiet_most)
    return invalid("--alpha-min " + std::to_string(o.dynamic_alpha.least) +
                   " is above --alpha-quiet-max " + std::to_string(o.dynamic_alpha.quiet_most));
  int32_t nodes = std::max(
      o.speculation_tree_nodes,
      DraftShape{o.speculation_tree}.nodes(static_cast<int32_t>(o.speculation_tree.size())));
  const char* flag =
      o.speculation_tree_nodes > 0 ? "--speculation-tree-nodes" : "--speculation-tree";
  if (o.speculation_tree_nodes > 0 && !o.speculation_tree.empty())
    return invalid("--speculation-tree and --speculation-tree-nodes: give one of them");
  if (nodes > kMaxTreeNodes)
    return invalid(std::string(flag) + ": at most " + std::to_string(kMaxTreeNodes) +
                   " nodes; the mask of a row has a bit for each");
  if (nodes >= o.max_num_batched_tokens)
    return invalid(std::string(flag) + ": " + std::to_string(nodes) +
                   " nodes and their root do not fit into --max-num-batched-tokens " +
                   std::to_string(o.max_num_batched_tokens));
  return {};
}

// `auto` becomes what is there: n-grams first, then the head or the model that was given.
Result<std::vector<std::string>> drafters_of(const EngineOptions& o, const OpenModels& models) {
  if (is_off(o)) return std::vector<std::string>{};
  const DraftModel *head = models.find(true), *model = models.find(false);
  if (is_auto(o)) {
    std::vector<std::string> names = {"ngram"};
    if (head) names.push_back(head->kind());
    if (model) names.push_back("model");
    return names;
  }
  int64_t n_layers = models.target.config.n_layers;
  if (wants(o, "early-exit") && (o.draft_layers < 1 || o.draft_layers >= n_layers))
    return invalid("--speculation early-exit needs --draft-layers in 1.." +
                   std::to_string(n_layers - 1) + "; the model has " + std::to_string(n_layers) +
                   " (inspect --exit-layers measures them)");
  if (wants(o, "early-exit") && o.tensor_parallel_size > 1)
    return invalid(
        "--speculation early-exit: a model that several devices share has no early exit; name "
        "another drafter");
  for (const char* kind : {"eagle", "medusa"})
    if (wants(o, kind) && head && head->kind() != std::string(kind))
      return invalid(std::string("--speculation ") + kind + ": " + head->from.path +
                     " has heads of another kind; name " + head->kind());
  if (wants(o, "model") && !model)
    return invalid(head ? "--speculation model: " + head->from.path +
                              " is a head over hidden states; name " + head->kind() +
                              ", or give a model with --draft"
                        : "--speculation model needs a draft model: give one with --draft PATH");
  for (const std::string kind : {"eagle", "medusa"})
    if (wants(o, kind) && !head)
      return invalid(model ? "--speculation " + kind + ": " + model->from.path +
                                 " is a model of its own; name model, or give a head with --draft"
                           : "--speculation " + kind + " needs a head: give one with --draft PATH");
  if (wants(o, "cascade") && !model)
    return invalid("--speculation cascade filters n-grams by a draft model: give one with --draft");
  std::vector<std::string> names = o.speculation;
  if (wants(o, "cascade") && !wants(o, "model"))
    names.push_back("model");  // it drafts where there is nothing to filter
  return names;
}

Status add_draft(const EngineOptions& o, const DraftOption& option, Content content,
                 OpenModels* out) {
  Result<DraftModel> draft = load_draft(o, option, content, out->target);
  if (!draft.ok()) return draft.status();
  if (draft->is_head() && out->find(true))
    return invalid("--draft " + option.path + ": a second draft head; one can be resident");
  if (is_drafter_name(draft->name) && draft->name != draft->kind())
    return invalid("--draft " + draft->name + "=" + option.path + ": '" + draft->name +
                   "' is what another drafter is called; choose another name");
  for (const DraftModel& d : out->drafts)
    if (d.name == draft->name)
      return invalid("--draft " + option.path + ": a second draft called '" + d.name +
                     "'; name them apart with --draft NAME=PATH");
  out->drafts.push_back(draft.take());
  return {};
}

Status load_models(const EngineOptions& o, Content content, OpenModels* out) {
  Result<Model> target = load_model(o.model, Role::kTarget, content);
  if (!target.ok()) return target.status();
  out->target = target.take();
  if (Status s = check_stands_alone(out->target); !s.ok()) return s.within(o.model);
  if (o.tensor_parallel_size > 1)
    if (Status s = check_shards(out->target, o.tensor_parallel_size, o.quantization == "int4");
        !s.ok())
      return s.within(o.model);
  if (!needs_drafts(o)) return {};
  for (const DraftOption& option : o.drafts)
    if (Status s = add_draft(o, option, content, out); !s.ok()) return s;
  return check_lora_taken(o, out->drafts);
}

// Drops what is given and not named, and says where the rest keeps K and V.
Status place_drafts(const EngineOptions& o, OpenModels* models) {
  const std::vector<std::string>& names = models->drafters;
  const Device device = models->device;
  std::erase_if(models->drafts, [&](const DraftModel& d) {
    return std::find(names.begin(), names.end(), d.kind()) == names.end();
  });
  int64_t max_context = o.max_model_len > 0 ? o.max_model_len : models->target.config.max_context;
  for (DraftModel& d : models->drafts) {
    Device own = device;
    if (!d.is_head()) {
      Result<Device> chosen = choose_draft_device(o, device);
      if (!chosen.ok()) return chosen.status();
      own = *chosen;
    }
    Result<DraftPlace> place = place_draft(o, max_context, own == device, &d);
    if (!place.ok()) return place.status();
    models->places.push_back(*place);
    models->devices.push_back(own);
  }
  return {};
}

}  // namespace

const DraftModel* OpenModels::find(bool head) const {
  for (const DraftModel& d : drafts)
    if (d.is_head() == head) return &d;
  return nullptr;
}

std::vector<ResidentModel> OpenModels::residents(const EngineOptions& o) const {
  ResidentModel r;
  r.block_tokens = o.block_size;
  r.max_rows = o.max_num_batched_tokens;
  r.head_rows = target_head_rows(o);
  r.name = "target";
  r.model = &target;
  r.numbers = numbers_of(o, device, target);
  r.weights = o.quantization != "none" ? o.quantization : r.numbers;
  if (const DraftModel* head = find(true)) {
    r.keep_hidden = true;
    r.tap_layers = tap_layers_of(head->model, target).take();  // check_fits has seen its layers
  }
  r.device = device;
  r.n_devices = o.tensor_parallel_size;
  std::vector<ResidentModel> all = {r};
  r.n_devices = 1;
  r.keep_hidden = false;
  r.tap_layers.clear();
  for (size_t i = 0; i < drafts.size(); ++i) {
    r.name = drafts[i].is_head() ? "draft head" : "draft model";
    if (drafts.size() > 1) r.name += " " + drafts[i].name;
    r.model = &drafts[i].model;
    r.head_rows = draft_head_rows(o, *r.model);
    r.embedding_of = r.model->shares_embedding || r.model->shares_head ? &target : nullptr;
    r.numbers = drafts[i].is_head() ? all[0].numbers : numbers_of(o, devices[i], *r.model);
    r.weights = o.draft_quantization != "none" ? o.draft_quantization : r.numbers;
    r.device = devices[i];
    r.in_tables = places[i].in_tables;
    r.n_window_blocks = places[i].n_window_blocks;
    all.push_back(r);
  }
  return all;
}

Result<OpenModels> open_models(const EngineOptions& o, Device device, Content content) {
  if (Status s = check_options(o); !s.ok()) return s;
  if (Status s = check_speculation(o); !s.ok()) return s;
  OpenModels models;
  models.device = device;
  if (Status s = load_models(o, content, &models); !s.ok()) return s;
  Result<std::vector<std::string>> names = drafters_of(o, models);
  if (!names.ok()) return names.status();
  models.drafters = names.take();
  if (Status s = place_drafts(o, &models); !s.ok()) return s;
  return models;
}

}  // namespace pf
