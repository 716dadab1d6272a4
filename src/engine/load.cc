#include "engine/load.h"

#include <algorithm>

#include "engine/device.h"
#include "engine/drafter_names.h"
#include "engine/head_rooms.h"
#include "engine/memory_plan.h"
#include "engine/nvml.h"
#include "engine/open_models.h"
#include "model/quantize.h"
#include "speculation/eagle_drafter.h"
#include "speculation/early_exit_drafter.h"
#include "speculation/lookahead_drafter.h"
#include "speculation/medusa_drafter.h"
#include "speculation/model_drafter.h"
#include "speculation/ngram_drafter.h"
#include "speculation/predicted_drafter.h"
#include "speculation/suffix_drafter.h"

namespace pf {
namespace {

// What the parts below are made from.
struct Loading {
  const EngineOptions& options;
  const OpenModels& models;
  const MemoryPlan& plan;
};

EngineInfo describe(const OpenModels& models, const MemoryPlan& plan, const Backend& target) {
  EngineInfo info;
  info.architecture = models.target.config.architecture;
  info.dtype = target.info().dtype;
  info.kv_dtype = target.info().kv_dtype;
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
                                      bool prefix_caching, std::unique_ptr<Backend> backend) {
  const ModelConfig& c = draft.model.config;
  if (!draft.model.medusa.empty())
    return std::make_unique<MedusaDrafter>(
        MedusaDrafter::Options{draft.name, static_cast<int32_t>(draft.model.medusa.size())},
        std::move(backend));
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
               place.n_window_blocks, resident.block_tokens, prefix_caching};
  o.vocabulary = draft.vocabulary;
  o.max_rows = resident.max_rows;
  o.overlaps = place.overlaps;
  return std::make_unique<ModelDrafter>(std::move(o), std::move(backend));
}

// A resident draft, described. `plane`: of the target's block tables; taken where it needs one.
Status add_resident(const Loading& loading, size_t i, int32_t* plane, EngineParts* parts) {
  const DraftModel& draft = loading.models.drafts[i];
  const DraftPlace& place = loading.models.places[i];
  ResidentModel resident = loading.plan.residents[i + 1];
  if (draft.is_head()) resident.hidden_of = parts->step.target->hidden_states();
  Result<std::unique_ptr<Backend>> backend =
      make_backend(resident.device, loading.options, resident, *parts->pool);
  if (!backend.ok()) return backend.status().within(draft.from.path);
  DrafterDescription d{draft.name, draft.kind(), (*backend)->info().dtype,
                       std::min(parts->info.max_context, draft.model.config.max_context), 0};
  if (place.window_tokens > 0) d.max_context = parts->info.max_context;
  d.step_cost_ratio = static_cast<float>((*backend)->info().bytes_per_step) /
                      static_cast<float>(parts->step.target->info().bytes_per_step);
  if (!draft.model.medusa.empty())  // a step of the draft is one head
    d.step_cost_ratio /= static_cast<float>(draft.model.medusa.size());
  parts->step.drafters.add(make_drafter(draft, place, resident, place.in_tables ? (*plane)++ : -1,
                                        loading.options.prefix_caching, backend.take()));
  parts->info.drafters.push_back(d);
  for (const std::string& note : draft.notes) parts->info.notes.push_back(draft.name + ": " + note);
  return {};
}

Status add_early_exit(const Loading& loading, DrafterDescription d, EngineParts* parts) {
  const EngineOptions& o = loading.options;
  const Model& target = loading.models.target;
  Result<Model> first = first_layers(target, o.draft_layers);
  if (!first.ok()) return first.status();
  const std::string& type = loading.plan.residents[0].weights;
  d.quantization = parts->info.dtype;
  d.step_cost_ratio = static_cast<float>(packed_bytes(*first, type)) /
                      static_cast<float>(packed_bytes(target, type));
  parts->step.drafters.add(
      std::make_unique<EarlyExitDrafter>(parts->step.target.get(), o.draft_layers));
  parts->info.drafters.push_back(d);
  return {};
}

// Makes the named drafters, in order of preference, and says what they are.
Status add_drafters(const Loading& loading, EngineParts* parts) {
  const OpenModels& models = loading.models;
  const std::vector<std::string>& names = models.drafters;
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
    else if (name == "lookahead")
      add(std::make_unique<LookaheadDrafter>());
    else if (name == "cascade")
      continue;  // once its model is there
    else if (name == "early-exit")
      s = add_early_exit(loading, d, parts);
    for (size_t i = 0; i < models.drafts.size() && s.ok(); ++i)
      if (name == models.drafts[i].kind()) s = add_resident(loading, i, &plane, parts);
    if (!s.ok()) return s;
  }
  return wants(loading.options, "cascade") ? add_cascade(loading.options, parts) : Status();
}

void set_step(const EngineOptions& o, const MemoryPlan& plan, const OpenModels& models,
              StepParts* step) {
  auto n_planes = static_cast<int32_t>(
      1 + std::count_if(models.places.begin(), models.places.end(),
                        [](const DraftPlace& place) { return place.in_tables; }));
  step->kv = {plan.n_blocks, o.block_size, n_planes, o.prefix_caching};
  step->scheduler.max_num_seqs = o.max_num_seqs;
  step->scheduler.max_num_batched_tokens = o.max_num_batched_tokens;
  step->max_context = plan.max_context;
  step->num_speculative_tokens = longest_chain(o);
  step->length.rule = o.draft_length == "adaptive" ? LengthRule::kAdaptive
                      : o.draft_length == "window" ? LengthRule::kWindow
                      : o.draft_length == "rate"   ? LengthRule::kRate
                                                   : LengthRule::kFixed;
  step->speculation_tree = o.speculation_tree;
  step->speculation_tree_nodes = o.speculation_tree_nodes;
  step->draft_temperature = o.draft_temperature;
  step->has_policy = o.acceptance != "auto";
  step->policy.rule = o.acceptance == "coupled"             ? Acceptance::kCoupled
                      : o.acceptance == "threshold"         ? Acceptance::kThreshold
                      : o.acceptance == "threshold-literal" ? Acceptance::kThresholdLiteral
                      : o.acceptance == "typical"           ? Acceptance::kTypical
                                                            : Acceptance::kRejection;
  step->dynamic_alpha = o.alpha <= 0;
  step->policy.alpha = o.alpha > 0 ? o.alpha : 1;
  step->alpha = o.dynamic_alpha;
}

// Before the first of it is read: what `progress` will come to.
void expect_all(const EngineOptions& o, const MemoryPlan& plan, const Model& target,
                Progress* progress) {
  int64_t bytes = stored_bytes(target);
  for (const ResidentModel& r : plan.residents)
    for (int32_t rank = 0; rank < r.n_devices; ++rank)
      bytes += footprint(r.device, o, r, n_threads_of(o), rank).read_bytes;
  progress->expect(bytes);
}

Result<MemoryPlan> plan_with(const EngineOptions& o, const OpenModels& models, int64_t bytes) {
  return plan_memory(o, {models.device, n_threads_of(o), bytes}, models.residents(o));
}

MemoryFigures figures_of(const EngineOptions& o, const MemoryPlan& plan) {
  MemoryFigures f;
  for (const MemoryPlan::Part& part : plan.parts) f.parts.push_back({part.name, part.bytes});
  f.device_bytes = plan.available_bytes;
  f.max_context = plan.max_context;
  f.n_full_sequences = std::min<int64_t>(o.max_num_seqs, plan.n_blocks / plan.blocks_per_sequence);
  f.kv_bytes_per_token = plan.kv_bytes_per_token;
  return f;
}

}  // namespace

Result<MemoryFigures> plan_engine(const EngineOptions& o) {
  Result<Device> device = choose_device(o);
  if (!device.ok()) return device.status();
  Result<OpenModels> models = open_models(o, *device, Content::kShapes);
  if (!models.ok()) return models.status();
  int64_t bytes = available_bytes(*device, o.tensor_parallel_size);
  Result<MemoryPlan> plan = plan_with(o, *models, bytes);
  if (plan.ok()) return figures_of(o, *plan);
  // What it would take, if it is memory that is missing.
  Result<MemoryPlan> wanted = plan_with(o, *models, int64_t{1} << 60);
  if (!wanted.ok()) return plan.status();
  MemoryFigures f = figures_of(o, *wanted);
  f.device_bytes = bytes;
  f.fits = false;
  return f;
}

Result<EngineParts> load_engine(const EngineOptions& o, Progress* progress) {
  Result<Device> device = choose_device(o);
  if (!device.ok()) return device.status();
  Result<OpenModels> opened = open_models(o, *device, Content::kWeights);
  if (!opened.ok()) return opened.status();
  const OpenModels& models = *opened;
  Result<MemoryPlan> plan = plan_with(o, models, available_bytes(*device, o.tensor_parallel_size));
  if (!plan.ok()) return plan.status();
  if (progress) expect_all(o, *plan, models.target, progress);
  for (ResidentModel& r : plan->residents) r.progress = progress;

  EngineParts parts;
  parts.max_queue = o.max_queue;
  parts.pool = std::make_unique<ThreadPool>(n_threads_of(o));
  if (Status s = check_finite(models.target, *parts.pool, progress); !s.ok())
    return s.within(o.model);
  Result<std::unique_ptr<Backend>> target =
      make_backend(*device, o, plan->residents[0], *parts.pool);
  if (!target.ok()) return target.status().within(o.model);
  parts.info = describe(models, *plan, **target);
  parts.info.memory = figures_of(o, *plan);
  parts.step.target = target.take();
  if (Status s = add_drafters({o, models, *plan}, &parts); !s.ok()) return s;
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
