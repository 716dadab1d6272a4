#include "engine/drafter_names.h"

#include <algorithm>

#include "speculation/cascade_drafter.h"
#include "speculation/model_drafter.h"
#include "speculation/ngram_drafter.h"

namespace pf {
namespace {

constexpr std::string_view kKnownDrafters[] = {"ngram", "suffix", "lookahead", "early-exit",
                                               "model", "eagle",  "medusa",    "cascade"};

bool is_known(const std::string& name) {
  return std::find(std::begin(kKnownDrafters), std::end(kKnownDrafters), name) !=
         std::end(kKnownDrafters);
}

}  // namespace

std::span<const std::string_view> known_drafters() { return kKnownDrafters; }

bool wants(const EngineOptions& o, const std::string& drafter) {
  return std::find(o.speculation.begin(), o.speculation.end(), drafter) != o.speculation.end();
}

bool is_drafter_name(const std::string& name) {
  return name == "off" || name == "auto" || name == "predicted" || is_known(name);
}

bool is_off(const EngineOptions& o) {
  return o.speculation.empty() || o.speculation == std::vector<std::string>{"off"};
}
bool is_auto(const EngineOptions& o) { return o.speculation == std::vector<std::string>{"auto"}; }

bool needs_drafts(const EngineOptions& o) {
  return !is_off(o) && (is_auto(o) || wants(o, "model") || wants(o, "eagle") ||
                        wants(o, "medusa") || wants(o, "cascade"));
}

Status check_speculation(const EngineOptions& o) {
  if (is_off(o) || is_auto(o)) return {};
  for (const std::string& name : o.speculation) {
    if (name == "off" || name == "auto")
      return invalid("--speculation " + name + " stands alone; leave the other names away");
    if (std::count(o.speculation.begin(), o.speculation.end(), name) > 1)
      return invalid("--speculation " + name + ": named twice; once is enough");
    if (is_known(name)) continue;
    std::string known = "off, auto";
    for (std::string_view k : kKnownDrafters) known += ", " + std::string(k);
    return invalid("--speculation " + name + ": no such drafter; known: " + known);
  }
  return {};
}

Status add_cascade(const EngineOptions& o, EngineParts* parts) {
  DrafterChoice& drafters = parts->step.drafters;
  DrafterDescription d;
  std::unique_ptr<Drafter> cascade;
  for (int32_t i = 0, n = drafters.size(); i < n; ++i) {
    auto* model = dynamic_cast<ModelDrafter*>(&drafters[i]);
    if (model == nullptr || model->plane_context() <= 0) continue;
    d = parts->info.drafters[static_cast<size_t>(i)];
    d.name = d.kind = "cascade";
    d.max_context = std::min(d.max_context, model->plane_context());
    if (!cascade) cascade = std::make_unique<NgramDrafter>(1);
    cascade = std::make_unique<CascadeDrafter>(
        CascadeDrafter::Options{d.name, model->plane(), model->plane_context(),
                                o.max_num_batched_tokens},
        std::move(cascade), &model->backend());
  }
  if (!cascade)
    return invalid(
        "--speculation cascade needs a draft model with the target's tokens and device; "
        "name model");
  drafters.add(std::move(cascade));
  parts->info.drafters.push_back(d);
  return {};
}

}  // namespace pf
