#include "engine/load.h"

#include <algorithm>
#include <optional>

#include "engine/device.h"
#include "engine/memory_plan.h"
#include "engine/open_models.h"
#include "model/quantize.h"
#include "speculation/eagle_drafter.h"
#include "speculation/early_exit_drafter.h"
#include "speculation/model_drafter.h"
#include "speculation/ngram_drafter.h"
#include "speculation/predicted_drafter.h"
#include "speculation/suffix_drafter.h"

namespace pf {
namespace {

// What the parts below are made from.
struct Loading {
  const EngineOptions& options;
  Device device;
  const OpenModels& models;
  const MemoryPlan& plan;

  const ResidentModel& resident(const std::optional<Model>& draft) const {
    return *std::find_if(plan.residents.begin(), plan.residents.end(),
                         [&](const ResidentModel& r) { return r.model == &*draft; });
  }
};

EngineInfo describe(const OpenModels& models, const MemoryPlan& plan, const Backend& target) {
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
Status add_resident(const Loading& loading, const DraftOption& from, const ResidentModel& resident,
                    int32_t plane, DrafterDescription d, EngineParts* parts) {
  const Model& draft = *resident.model;
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
        EagleDrafter::Options{d.name, plane, draft.config.max_context, draft.config.width,
                              resident.n_blocks, resident.block_tokens},
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
Status add_drafters(const Loading& loading, EngineParts* parts) {
  const OpenModels& models = loading.models;
  const std::vector<std::string>& names = models.drafters;
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
      s = add_resident(loading, models.head_from, loading.resident(models.head),
                       models.draft ? 2 : 1, d, parts);
    else
      s = add_resident(loading, models.draft_from, loading.resident(models.draft), 1, d, parts);
    if (!s.ok()) return s;
  }
  return {};
}

void set_step(const EngineOptions& o, const MemoryPlan& plan, const OpenModels& models,
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
  Result<Device> device = choose_device(o);
  if (!device.ok()) return device.status();
  Result<OpenModels> opened = open_models(o, Content::kWeights);
  if (!opened.ok()) return opened.status();
  const OpenModels& models = *opened;
  const int32_t n_threads = n_threads_of(o);
  Result<MemoryPlan> plan =
      plan_memory(o, {*device, n_threads, available_bytes(*device)}, models.residents(o, *device));
  if (!plan.ok()) return plan.status();

  EngineParts parts;
  parts.max_queue = o.max_queue;
  parts.pool = std::make_unique<ThreadPool>(n_threads);
  if (Status s = check_finite(models.target, *parts.pool); !s.ok()) return s.within(o.model);
  Result<std::unique_ptr<Backend>> target =
      make_backend(*device, o, plan->residents[0], *parts.pool);
  if (!target.ok()) return target.status().within(o.model);
  parts.info = describe(models, *plan, **target);
  parts.step.target = target.take();
  Loading loading{o, *device, models, *plan};
  if (Status s = add_drafters(loading, &parts); !s.ok()) return s;
  set_step(o, *plan, models, &parts.step);
  for (const DrafterDescription& d : parts.info.drafters)
    parts.step.length.cost_ratios.push_back(std::max(d.step_cost_ratio, 0.002f));
  return parts;
}

}  // namespace pf
