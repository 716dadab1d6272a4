#include "engine/load.h"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "backend/cpu/cpu_backend.h"
#include "engine/memory_plan.h"
#include "model/quantize.h"
#include "speculation/model_drafter.h"
#include "speculation/ngram_drafter.h"

namespace pf {
namespace {

constexpr int32_t kDraftPlane = 1;

int32_t usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

CpuOptions::Weights weights_of(const std::string& type) {
  if (type == "fp32") return CpuOptions::Weights::kF32;
  if (type == "int8") return CpuOptions::Weights::kInt8;
  if (type == "int4") return CpuOptions::Weights::kInt4;
  return CpuOptions::Weights::kBf16;
}

bool wants(const EngineOptions& o, const std::string& drafter) {
  return std::find(o.speculation.begin(), o.speculation.end(), drafter) != o.speculation.end();
}

// `auto` becomes what is there: n-grams first, then the model when one was given.
Result<std::vector<std::string>> drafters_of(const EngineOptions& o) {
  if (o.speculation.empty() || o.speculation == std::vector<std::string>{"off"})
    return std::vector<std::string>{};
  if (o.speculation == std::vector<std::string>{"auto"})
    return o.drafts.empty() ? std::vector<std::string>{"ngram"}
                            : std::vector<std::string>{"ngram", "model"};
  for (const std::string& name : o.speculation)
    if (name != "ngram" && name != "model")
      return invalid("--speculation " + name + ": no such drafter; known: off, auto, ngram, model");
  if (wants(o, "model") && o.drafts.empty())
    return invalid("--speculation model needs a draft model: give one with --draft PATH");
  return o.speculation;
}

Status check_options(const EngineOptions& o) {
  if (o.drafts.size() > 1)
    return invalid("--draft was given twice; one draft model can be resident");
  if (o.device == "cuda")
    return Status(Code::kUnavailable,
                  "--device cuda: this build has no CUDA backend; use --device cpu");
  if (o.dtype == "fp16")
    return invalid(
        "--dtype fp16: the CPU computes in bf16 (FP16 files are converted once at load) or fp32");
  if (o.max_num_batched_tokens < o.max_num_seqs)
    return invalid("--max-num-batched-tokens " + std::to_string(o.max_num_batched_tokens) +
                   " is below --max-num-seqs " + std::to_string(o.max_num_seqs) +
                   ": every running sequence needs a row");
  return {};
}

struct Models {
  Model target;
  std::optional<Model> draft;  // may borrow from the target
};

Status load_models(const EngineOptions& o, bool needs_draft, Models* out) {
  Result<Model> target = load_model(o.model, Role::kTarget);
  if (!target.ok()) return target.status();
  out->target = target.take();
  if (Status s = check_stands_alone(out->target); !s.ok()) return s.within(o.model);
  if (!needs_draft) return {};
  const DraftOption& option = o.drafts[0];
  if (option.path == "self") {
    int64_t n = o.draft_layers > 0 ? o.draft_layers : out->target.config.n_layers;
    Result<Model> self = first_layers(out->target, static_cast<int>(n));
    if (!self.ok()) return self.status().within("--draft-layers " + std::to_string(n));
    out->draft = self.take();
    return {};
  }
  Result<Model> draft = load_model(option.path, Role::kDraft);
  if (!draft.ok()) return draft.status();
  if (o.draft_rope_theta > 0) draft->config.rope_theta = o.draft_rope_theta;
  if (Status s = check_fits(*draft, out->target); !s.ok()) return s.within(option.path);
  out->draft = draft.take();
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

std::string target_weights(const EngineOptions& o) {
  if (o.quantization != "none") return o.quantization;
  return o.dtype == "fp32" ? "fp32" : "bf16";
}
std::string draft_weights(const EngineOptions& o) {
  if (o.draft_quantization != "none") return o.draft_quantization;
  return o.dtype == "fp32" ? "fp32" : "bf16";
}

// Makes the named drafters, in order of preference, and says what they are.
Status add_drafters(const EngineOptions& o, const std::vector<std::string>& names,
                    const Models& models, CpuOptions cpu, EngineParts* parts) {
  cpu.weights = weights_of(draft_weights(o));
  for (const std::string& name : names) {
    DrafterDescription d{name, name, "", parts->info.max_context, 0};
    if (name == "ngram") {
      // Beside a model only a match worth trusting is used.
      parts->step.drafters.add(std::make_unique<NgramDrafter>(names.size() > 1 ? 2 : 1));
    } else {
      const Model& draft = *models.draft;
      Result<std::unique_ptr<Backend>> backend = make_cpu_backend(
          draft, draft.shares_embedding ? &models.target : nullptr, cpu, *parts->pool);
      if (!backend.ok()) return backend.status().within(o.drafts[0].path);
      d.max_context = std::min(d.max_context, draft.config.max_context);
      d.quantization = (*backend)->info().dtype;
      d.step_cost_ratio = static_cast<float>((*backend)->info().bytes_per_step) /
                          static_cast<float>(parts->step.target->info().bytes_per_step);
      if (!o.drafts[0].name.empty()) d.name = o.drafts[0].name;
      parts->step.drafters.add(std::make_unique<ModelDrafter>(d.name, backend.take(), kDraftPlane,
                                                              draft.config.max_context));
    }
    parts->info.drafters.push_back(d);
  }
  return {};
}

void set_step(const EngineOptions& o, const MemoryPlan& plan, bool has_draft, StepParts* step) {
  step->kv = {plan.n_blocks, o.block_size, has_draft ? 2 : 1, o.prefix_caching};
  step->scheduler.max_num_seqs = o.max_num_seqs;
  step->scheduler.max_num_batched_tokens = o.max_num_batched_tokens;
  step->scheduler.draft_plane = has_draft ? kDraftPlane : -1;
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
  Result<std::vector<std::string>> names = drafters_of(o);
  if (!names.ok()) return names.status();
  bool has_draft = std::find(names->begin(), names->end(), "model") != names->end();
  Models models;
  if (Status s = load_models(o, has_draft, &models); !s.ok()) return s;
  Result<MemoryPlan> plan =
      plan_memory(o, models.target, has_draft ? &*models.draft : nullptr, available_memory_bytes());
  if (!plan.ok()) return plan.status();

  EngineParts parts;
  parts.max_queue = o.max_queue;
  parts.pool = std::make_unique<ThreadPool>(o.threads > 0 ? o.threads : usable_cpus());
  if (Status s = check_finite(models.target, *parts.pool); !s.ok()) return s.within(o.model);
  CpuOptions cpu;
  cpu.weights = weights_of(target_weights(o));
  cpu.n_blocks = plan->n_blocks;
  cpu.block_tokens = o.block_size;
  cpu.max_rows = o.max_num_batched_tokens;
  cpu.max_context = plan->max_context;
  Result<std::unique_ptr<Backend>> target =
      make_cpu_backend(models.target, nullptr, cpu, *parts.pool);
  if (!target.ok()) return target.status().within(o.model);
  parts.info = describe(models, *plan, **target);
  parts.step.target = target.take();
  if (Status s = add_drafters(o, *names, models, cpu, &parts); !s.ok()) return s;
  set_step(o, *plan, has_draft, &parts.step);
  for (const DrafterDescription& d : parts.info.drafters)
    parts.step.length.cost_ratios.push_back(std::max(d.step_cost_ratio, 0.002f));
  return parts;
}

}  // namespace pf
