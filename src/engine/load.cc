#include "engine/load.h"

#include <sched.h>

#include <algorithm>

#include "engine/device.h"
#include "engine/draft_models.h"
#include "engine/memory_plan.h"
#include "engine/nvml.h"
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
  std::vector<DraftModel> drafts;
  std::vector<DraftPlace> places;  // by draft
  std::vector<Device> devices;     // by draft

  const DraftModel* find(bool head) const {
    for (const DraftModel& d : drafts)
      if (d.is_head() == head) return &d;
    return nullptr;
  }
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
  const DraftModel *head = models.find(true), *model = models.find(false);
  if (is_auto(o)) {
    std::vector<std::string> names = {"ngram"};
    if (head) names.push_back("eagle");
    if (model) names.push_back("model");
    return names;
  }
  int64_t n_layers = models.target.config.n_layers;
  if (wants(o, "early-exit") && (o.draft_layers < 1 || o.draft_layers >= n_layers))
    return invalid("--speculation early-exit needs --draft-layers in 1.." +
                   std::to_string(n_layers - 1) + "; the model has " + std::to_string(n_layers) +
                   " (inspect --exit-layers measures them)");
  if (wants(o, "model") && !model)
    return invalid(
        head ? "--speculation model: " + head->from.path +
                   " is a head over hidden states; name eagle, or give a model with --draft"
             : "--speculation model needs a draft model: give one with --draft PATH");
  if (wants(o, "eagle") && !head)
    return invalid(model ? "--speculation eagle: " + model->from.path +
                               " is a model of its own; name model, or give a head with --draft"
                         : "--speculation eagle needs a head: give one with --draft PATH");
  return o.speculation;
}

Status add_draft(const EngineOptions& o, const DraftOption& option, Models* out) {
  Result<DraftModel> draft = load_draft(o, option, out->target);
  if (!draft.ok()) return draft.status();
  if (draft->is_head() && out->find(true))
    return invalid("--draft " + option.path + ": a second draft head; one can be resident");
  for (const DraftModel& d : out->drafts)
    if (d.name == draft->name)
      return invalid("--draft " + option.path + ": a second draft called '" + d.name +
                     "'; name them apart with --draft NAME=PATH");
  out->drafts.push_back(draft.take());
  return {};
}

Status load_models(const EngineOptions& o, Models* out) {
  Result<Model> target = load_model(o.model, Role::kTarget);
  if (!target.ok()) return target.status();
  out->target = target.take();
  if (Status s = check_stands_alone(out->target); !s.ok()) return s.within(o.model);
  if (!needs_drafts(o)) return {};
  for (const DraftOption& option : o.drafts)
    if (Status s = add_draft(o, option, out); !s.ok()) return s;
  return {};
}

// Drops what is given and not named, and says where the rest keeps K and V.
Status place_drafts(const EngineOptions& o, std::span<const std::string> names, Device device,
                    Models* models) {
  std::erase_if(models->drafts, [&](const DraftModel& d) {
    return std::find(names.begin(), names.end(), d.is_head() ? "eagle" : "model") == names.end();
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

std::vector<PlannedDraft> planned_drafts(const Models& models, Device device) {
  std::vector<PlannedDraft> planned;
  for (size_t i = 0; i < models.drafts.size(); ++i)
    if (models.devices[i] == device)
      planned.push_back(
          {&models.drafts[i].model, models.places[i].in_tables, models.places[i].n_window_blocks});
  return planned;
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

// A head over hidden states, or a model, with the blocks that it needs.
std::unique_ptr<Drafter> make_drafter(const DraftModel& draft, const DraftPlace& place,
                                      const ResidentModel& resident, int32_t plane,
                                      std::unique_ptr<Backend> backend) {
  const ModelConfig& c = draft.model.config;
  if (draft.is_head())
    return std::make_unique<EagleDrafter>(
        EagleDrafter::Options{draft.name, plane, c.max_context, resident.n_blocks,
                              resident.block_tokens},
        std::move(backend));
  ModelDrafter::Options o;
  o.name = draft.name;
  o.plane = plane;
  o.max_context = place.max_context;
  o.n_known = draft.n_known;
  o.windows = {place.window_tokens, resident.n_blocks - place.n_window_blocks,
               place.n_window_blocks, resident.block_tokens};
  o.vocabulary = draft.vocabulary;
  o.max_rows = resident.max_rows;
  o.overlaps = place.overlaps;
  return std::make_unique<ModelDrafter>(std::move(o), std::move(backend));
}

// A resident draft, described. `plane`: of the target's block tables; taken where it needs one.
Status add_resident(const Loading& loading, size_t i, ResidentModel resident, int32_t* plane,
                    EngineParts* parts) {
  const DraftModel& draft = loading.models.drafts[i];
  const DraftPlace& place = loading.models.places[i];
  Device device = loading.models.devices[i];
  resident.model = &draft.model;
  resident.embedding_of =
      draft.model.shares_embedding || draft.model.shares_head ? &loading.models.target : nullptr;
  if (draft.is_head()) resident.hidden_of = parts->step.target->hidden_states();
  resident.weights = draft_weights(loading.options, device);
  if (!place.in_tables) resident.n_blocks = 0;
  resident.n_blocks += place.n_window_blocks;
  Result<std::unique_ptr<Backend>> backend =
      make_backend(device, loading.options, resident, *parts->pool);
  if (!backend.ok()) return backend.status().within(draft.from.path);
  DrafterDescription d{draft.name, draft.is_head() ? "eagle" : "model", (*backend)->info().dtype,
                       std::min(parts->info.max_context, draft.model.config.max_context), 0};
  if (place.window_tokens > 0) d.max_context = parts->info.max_context;
  d.step_cost_ratio = static_cast<float>((*backend)->info().bytes_per_step) /
                      static_cast<float>(parts->step.target->info().bytes_per_step);
  parts->step.drafters.add(
      make_drafter(draft, place, resident, place.in_tables ? (*plane)++ : -1, backend.take()));
  parts->info.drafters.push_back(d);
  for (const std::string& note : draft.notes) parts->info.notes.push_back(draft.name + ": " + note);
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
  resident.keep_hidden = false;
  int32_t plane = kTargetPlane + 1;
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
    for (size_t i = 0; i < models.drafts.size() && s.ok(); ++i)
      if (name == (models.drafts[i].is_head() ? "eagle" : "model"))
        s = add_resident(loading, i, resident, &plane, parts);
    if (!s.ok()) return s;
  }
  return {};
}

void set_step(const EngineOptions& o, const MemoryPlan& plan, const Models& models,
              StepParts* step) {
  auto n_planes = static_cast<int32_t>(
      1 + std::count_if(models.places.begin(), models.places.end(),
                        [](const DraftPlace& place) { return place.in_tables; }));
  step->kv = {plan.n_blocks, o.block_size, n_planes, o.prefix_caching};
  step->scheduler.max_num_seqs = o.max_num_seqs;
  step->scheduler.max_num_batched_tokens = o.max_num_batched_tokens;
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

// What is opened and decided before anything is taken.
struct Opened {
  Device device = Device::kCpu;
  Models models;
  std::vector<std::string> names;  // of the drafters
};

Status open(const EngineOptions& o, Opened* out) {
  if (Status s = check_options(o); !s.ok()) return s;
  if (Status s = check_speculation(o); !s.ok()) return s;
  Result<Device> device = choose_device(o);
  if (!device.ok()) return device.status();
  out->device = *device;
  if (Status s = load_models(o, &out->models); !s.ok()) return s;
  Result<std::vector<std::string>> names = drafters_of(o, out->models);
  if (!names.ok()) return names.status();
  out->names = names.take();
  return place_drafts(o, out->names, out->device, &out->models);
}

Result<MemoryPlan> plan_with(const EngineOptions& o, const Opened& opened, int64_t bytes) {
  return plan_memory(o, opened.models.target, planned_drafts(opened.models, opened.device), bytes);
}

MemoryFigures figures_of(const EngineOptions& o, const MemoryPlan& plan) {
  MemoryFigures f;
  for (const MemoryPlan::Part& part : plan.parts) f.parts.push_back({part.name, part.bytes});
  f.device_bytes = plan.available_bytes;
  f.max_context = plan.max_context;
  int64_t n_each = (plan.max_context + kMaxTreeNodes) / o.block_size + 1;
  f.n_full_sequences = std::min<int64_t>(o.max_num_seqs, plan.n_blocks / n_each);
  f.kv_bytes_per_token = plan.kv_bytes_per_token;
  return f;
}

}  // namespace

Result<MemoryFigures> plan_engine(const EngineOptions& o) {
  Opened opened;
  if (Status s = open(o, &opened); !s.ok()) return s;
  int64_t bytes = available_bytes(opened.device);
  Result<MemoryPlan> plan = plan_with(o, opened, bytes);
  if (plan.ok()) return figures_of(o, *plan);
  // What it would take, if it is memory that is missing.
  Result<MemoryPlan> wanted = plan_with(o, opened, int64_t{1} << 60);
  if (!wanted.ok()) return plan.status();
  MemoryFigures f = figures_of(o, *wanted);
  f.device_bytes = bytes;
  f.fits = false;
  return f;
}

Result<EngineParts> load_engine(const EngineOptions& o) {
  Opened opened;
  if (Status s = open(o, &opened); !s.ok()) return s;
  const Models& models = opened.models;
  Device device = opened.device;
  Result<MemoryPlan> plan = plan_with(o, opened, available_bytes(device));
  if (!plan.ok()) return plan.status();

  EngineParts parts;
  parts.max_queue = o.max_queue;
  parts.pool = std::make_unique<ThreadPool>(o.threads > 0 ? o.threads : usable_cpus());
  if (Status s = check_finite(models.target, *parts.pool); !s.ok()) return s.within(o.model);
  ResidentModel resident{&models.target,
                         nullptr,
                         target_weights(o, device),
                         plan->n_blocks,
                         o.block_size,
                         o.max_num_batched_tokens,
                         plan->max_context,
                         models.find(true) != nullptr};
  if (const DraftModel* head = models.find(true))  // check_fits has seen its layers
    resident.tap_layers = tap_layers_of(head->model, models.target).take();
  Result<std::unique_ptr<Backend>> target = make_backend(device, o, resident, *parts.pool);
  if (!target.ok()) return target.status().within(o.model);
  parts.info = describe(models, *plan, **target);
  parts.info.memory = figures_of(o, *plan);
  parts.step.target = target.take();
  Loading loading{o, device, models};
  if (Status s = add_drafters(loading, opened.names, resident, &parts); !s.ok()) return s;
  set_step(o, *plan, models, &parts.step);
  if (o.alpha_load == "nvml") {
    Result<UtilisationReader> reader = read_nvml();
    if (!reader.ok()) return reader.status().within("--alpha-load nvml");
    parts.step.utilisation = reader.take();
  }
  for (const DrafterDescription& d : parts.info.drafters)
    parts.step.length.cost_ratios.push_back(std::max(d.step_cost_ratio, 0.002f));
  return parts;
}

}  // namespace pf
