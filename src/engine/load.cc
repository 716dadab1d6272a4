#include "engine/load.h"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "engine/device.h"
#include "engine/memory_plan.h"
#include "model/quantize.h"
#include "speculation/eagle_drafter.h"
#include "speculation/early_exit_drafter.h"
#include "speculation/model_drafter.h"
#include "speculation/ngram_drafter.h"
#include "speculation/predicted_drafter.h"
#include "speculation/suffix_drafter.h"

namespace pf {
namespace {

int32_t usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

bool wants(const EngineOptions& o, const std::string& drafter) {
  return std::find(o.speculation.begin(), o.speculation.end(), drafter) != o.speculation.end();
}

constexpr std::string_view kKnownDrafters[] = {"ngram", "suffix", "early-exit", "model", "eagle"};

bool is_off(const EngineOptions& o) {
  return o.speculation.empty() || o.speculation == std::vector<std::string>{"off"};
}
bool is_auto(const EngineOptions& o) { return o.speculation == std::vector<std::string>{"auto"}; }

// Whether --draft is opened at all.
bool needs_drafts(const EngineOptions& o) {
  return !is_off(o) && (is_auto(o) || wants(o, "model") || wants(o, "eagle"));
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

struct Models {
  Model target;
  // May borrow from the target. What they are made from is named for messages.
  std::optional<Model> draft, head;
  DraftOption draft_from, head_from;
};

// What the parts below are made from.
struct Loading {
  const EngineOptions& options;
  Device device;
  const Models& models;
};

// `auto` becomes what is there: n-grams first, then the head or the model that was given.
Result<std::vector<std::string>> drafters_of(const EngineOptions& o, const Models& models) {
  if (is_off(o)) return std::vector<std::string>{};
  if (is_auto(o)) {
    std::vector<std::string> names = {"ngram"};
    if (models.head) names.push_back("eagle");
    if (models.draft) names.push_back("model");
    return names;
  }
  int64_t n_layers = models.target.config.n_layers;
  if (wants(o, "early-exit") && (o.draft_layers < 1 || o.draft_layers >= n_layers))
    return invalid("--speculation early-exit needs --draft-layers in 1.." +
                   std::to_string(n_layers - 1) + "; the model has " + std::to_string(n_layers) +
                   " (inspect --exit-layers measures them)");
  if (wants(o, "model") && !models.draft)
    return invalid(
        models.head ? "--speculation model: " + models.head_from.path +
                          " is a head over hidden states; name eagle, or give a model with --draft"
                    : "--speculation model needs a draft model: give one with --draft PATH");
  if (wants(o, "eagle") && !models.head)
    return invalid(models.draft
                       ? "--speculation eagle: " + models.draft_from.path +
                             " is a model of its own; name model, or give a head with --draft"
                       : "--speculation eagle needs a head: give one with --draft PATH");
  return o.speculation;
}

Status load_draft(const EngineOptions& o, const DraftOption& option, Models* out) {
  Model draft;
  if (option.path == "self") {
    int64_t n = o.draft_layers > 0 ? o.draft_layers : out->target.config.n_layers;
    Result<Model> self = first_layers(out->target, static_cast<int>(n));
    if (!self.ok()) return self.status().within("--draft-layers " + std::to_string(n));
    draft = self.take();
  } else {
    Result<Model> loaded = load_model(option.path, Role::kDraft);
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

Status load_models(const EngineOptions& o, Models* out) {
  Result<Model> target = load_model(o.model, Role::kTarget);
  if (!target.ok()) return target.status();
  out->target = target.take();
  if (Status s = check_stands_alone(out->target); !s.ok()) return s.within(o.model);
  if (!needs_drafts(o)) return {};
  for (const DraftOption& option : o.drafts)
    if (Status s = load_draft(o, option, out); !s.ok()) return s;
  return {};
}

EngineInfo describe(const Models& models, const MemoryPlan& plan, const Backend& target) {
  EngineInfo info;
  info.architecture = models.target.config.architecture;
  info.dtype = target.info().dtype;
  info.device = target.info().device;
  info.vocabulary_size = target.info().vocabulary_size;
  info.max_context = plan.max_context;
  info.eos_ids = models.target.config.generation.eos_token_ids;
  info.weight_bytes = target.info().weight_bytes;
  info.kv_bytes = target.info().kv_bytes;
  info.scratch_bytes = target.info().scratch_bytes;
  return info;
}

// A resident draft on its own KV plane, described.
Status add_resident(const Loading& loading, const DraftOption& from, ResidentModel resident,
                    int32_t plane, DrafterDescription d, EngineParts* parts) {
  const Model& draft = *resident.model;
  resident.embedding_of =
      draft.shares_embedding || draft.shares_head ? &loading.models.target : nullptr;
  if (draft.takes_hidden()) resident.hidden_of = parts->step.target->hidden_states();
  Result<std::unique_ptr<Backend>> backend =
      make_backend(loading.device, loading.options, resident, *parts->pool);
  if (!backend.ok()) return backend.status().within(from.path);
  d.max_context = std::min(d.max_context, draft.config.max_context);
  d.quantization = (*backend)->info().dtype;
  d.step_cost_ratio = static_cast<float>((*backend)->info().bytes_per_step) /
                      static_cast<float>(parts->step.target->info().bytes_per_step);
  if (!from.name.empty()) d.name = from.name;
  if (draft.takes_hidden())
    parts->step.drafters.add(std::make_unique<EagleDrafter>(
        EagleDrafter::Options{d.name, plane, draft.config.max_context, resident.n_blocks,
                              resident.block_tokens},
        backend.take()));
  else
    parts->step.drafters.add(
        std::make_unique<ModelDrafter>(d.name, backend.take(), plane, draft.config.max_context));
  parts->info.drafters.push_back(d);
  return {};
}

Status add_early_exit(const Loading& loading, DrafterDescription d, EngineParts* parts) {
  const EngineOptions& o = loading.options;
  const Model& target = loading.models.target;
  Result<Model> first = first_layers(target, o.draft_layers);
  if (!first.ok()) return first.status();
  std::string type = target_weights(o, loading.device);
  d.quantization = parts->info.dtype;
  d.step_cost_ratio = static_cast<float>(packed_bytes(*first, type)) /
                      static_cast<float>(packed_bytes(target, type));
  parts->step.drafters.add(
      std::make_unique<EarlyExitDrafter>(parts->step.target.get(), o.draft_layers));
  parts->info.drafters.push_back(d);
  return {};
}

// Makes the named drafters, in order of preference, and says what they are.
Status add_drafters(const Loading& loading, const std::vector<std::string>& names,
                    ResidentModel resident, EngineParts* parts) {
  const Models& models = loading.models;
  resident.weights = draft_weights(loading.options, loading.device);
  resident.keep_hidden = false;
  resident.tap_layers.clear();
  auto resides = [&](const std::optional<Model>& draft) {
    resident.model = &*draft;
    return resident;
  };
  auto add = [&](std::unique_ptr<Drafter> drafter) {
    const std::string& name = drafter->name();
    parts->info.drafters.push_back({name, name, "", parts->info.max_context, 0});
    parts->step.drafters.add(std::move(drafter));
  };
  if (!names.empty()) add(std::make_unique<PredictedDrafter>());  // for those that bring a text
  // Beside other drafters only a match worth trusting is used.
  int32_t min_match = names.size() > 1 ? 2 : 1;
  for (const std::string& name : names) {
    DrafterDescription d{name, name, "", parts->info.max_context, 0};
    Status s;
    if (name == "ngram")
      add(std::make_unique<NgramDrafter>(min_match));
    else if (name == "suffix")
      add(std::make_unique<SuffixDrafter>(min_match));
    else if (name == "early-exit")
      s = add_early_exit(loading, d, parts);
    else if (name == "eagle")
      s = add_resident(loading, models.head_from, resides(models.head), models.draft ? 2 : 1, d,
                       parts);
    else
      s = add_resident(loading, models.draft_from, resides(models.draft), 1, d, parts);
    if (!s.ok()) return s;
  }
  return {};
}

void set_step(const EngineOptions& o, const MemoryPlan& plan, const Models& models,
              StepParts* step) {
  int32_t n_planes = 1 + models.draft.has_value() + models.head.has_value();
  step->kv = {plan.n_blocks, o.block_size, n_planes, o.prefix_caching};
  step->scheduler.max_num_seqs = o.max_num_seqs;
  step->scheduler.max_num_batched_tokens = o.max_num_batched_tokens;
  step->scheduler.draft_plane = models.draft ? 1 : -1;  // a head's plane needs no catch-up
  step->max_context = plan.max_context;
  bool deep = o.draft_length == "adaptive" || o.draft_length == "window";
  step->num_speculative_tokens = o.num_speculative_tokens >= 0 ? o.num_speculative_tokens
                                 : deep                        ? 10
                                                               : 5;
  step->length.rule = o.draft_length == "adaptive" ? LengthRule::kAdaptive
                      : o.draft_length == "window" ? LengthRule::kWindow
                      : o.draft_length == "rate"   ? LengthRule::kRate
                                                   : LengthRule::kFixed;
  step->speculation_tree = o.speculation_tree;
  step->draft_temperature = o.draft_temperature;
  step->has_policy = o.acceptance != "auto";
  step->policy.rule = o.acceptance == "coupled"             ? Acceptance::kCoupled
                      : o.acceptance == "threshold"         ? Acceptance::kThreshold
                      : o.acceptance == "threshold-literal" ? Acceptance::kThresholdLiteral
                      : o.acceptance == "typical"           ? Acceptance::kTypical
                                                            : Acceptance::kRejection;
  step->dynamic_alpha = o.alpha <= 0;
  step->policy.alpha = o.alpha > 0 ? o.alpha : 1;
  step->alpha.smoothing = o.alpha_smoothing;
}

}  // namespace

Result<EngineParts> load_engine(const EngineOptions& o) {
  if (Status s = check_options(o); !s.ok()) return s;
  if (Status s = check_speculation(o); !s.ok()) return s;
  Result<Device> device = choose_device(o);
  if (!device.ok()) return device.status();
  Models models;
  if (Status s = load_models(o, &models); !s.ok()) return s;
  Result<std::vector<std::string>> names = drafters_of(o, models);
  if (!names.ok()) return names.status();
  // What is given and not named is not made.
  auto named = [&](const char* name) {
    return std::find(names->begin(), names->end(), name) != names->end();
  };
  if (!named("model")) models.draft.reset();
  if (!named("eagle")) models.head.reset();
  std::vector<const Model*> drafts;
  for (const std::optional<Model>* m : {&models.draft, &models.head})
    if (*m) drafts.push_back(&**m);
  Result<MemoryPlan> plan = plan_memory(o, models.target, drafts, available_bytes(*device));
  if (!plan.ok()) return plan.status();

  EngineParts parts;
  parts.max_queue = o.max_queue;
  parts.pool = std::make_unique<ThreadPool>(o.threads > 0 ? o.threads : usable_cpus());
  if (Status s = check_finite(models.target, *parts.pool); !s.ok()) return s.within(o.model);
  ResidentModel resident{&models.target,
                         nullptr,
                         target_weights(o, *device),
                         plan->n_blocks,
                         o.block_size,
                         o.max_num_batched_tokens,
                         plan->max_context,
                         models.head.has_value()};
  if (models.head) {
    Result<std::vector<int32_t>> taps = tap_layers_of(*models.head, models.target);
    if (!taps.ok()) return taps.status().within(models.head_from.path);
    resident.tap_layers = taps.take();
  }
  Result<std::unique_ptr<Backend>> target = make_backend(*device, o, resident, *parts.pool);
  if (!target.ok()) return target.status().within(o.model);
  parts.info = describe(models, *plan, **target);
  parts.step.target = target.take();
  Loading loading{o, *device, models};
  if (Status s = add_drafters(loading, *names, resident, &parts); !s.ok()) return s;
  set_step(o, *plan, models, &parts.step);
  for (const DrafterDescription& d : parts.info.drafters)
    parts.step.length.cost_ratios.push_back(std::max(d.step_cost_ratio, 0.002f));
  return parts;
}

}  // namespace pf
