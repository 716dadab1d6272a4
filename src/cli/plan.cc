// `pilotfish plan`: what would go where in memory, and how much of it would fit, before a byte of a
// model is loaded. The same plan_memory that `serve` goes by.
#include "cli/plan.h"

#include <cstdio>
#include <fstream>

#include "cli/commands.h"
#include "cli/config.h"
#include "cli/draft_tokens.h"
#include "cli/line.h"
#include "cli/load_text.h"
#include "cli/parse_value.h"
#include "cli/settle.h"
#include "engine/open_models.h"

namespace pf {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

std::string gib(int64_t bytes) { return line("%.2f GiB", static_cast<double>(bytes) / kGib); }

void row(const std::string& what, const std::string& value) {
  std::printf("  %-44s %14s\n", what.c_str(), value.c_str());
}

int64_t pool_bytes(const MemoryPlan& plan, int32_t block_tokens) {
  return plan.n_blocks * plan.kv_bytes_per_token * block_tokens;
}

void print_memory(const MemoryPlan& plan, int32_t block_tokens, const PlanRequest& request) {
  const int32_t n_devices = plan.residents[0].n_devices;
  std::printf(
      "memory%s\n",
      n_devices > 1
          ? line(" of the first of %d devices (without CUDA graphs of the target)", n_devices)
                .c_str()
          : "");
  for (const MemoryPlan::Part& p : plan.parts) row(p.name, gib(p.bytes));
  row("in all", gib(plan.total_bytes()));
  if (n_devices > 1) row("on each other device", gib(plan.other_device_bytes));
  row("allowed (--gpu-memory-utilization)", gib(plan.budget_bytes));
  row("free on the device", gib(plan.available_bytes));
  std::printf("capacity\n");
  row("KV per token, all planes", std::to_string(plan.kv_bytes_per_token) + " B");
  row("KV blocks of " + std::to_string(block_tokens) + " tokens", std::to_string(plan.n_blocks));
  row("longest context, as planned", std::to_string(plan.max_context));
  row("longest context that one sequence could have", std::to_string(plan.largest_context));
  row("sequences of the planned context",
      std::to_string(n_sequences_that_fit(plan, block_tokens, 0)));
  if (request.shared_prefix > 0)
    row("the same with " + std::to_string(request.shared_prefix) + " tokens in common",
        std::to_string(n_sequences_that_fit(plan, block_tokens, request.shared_prefix)));
}

// SOURCES: one sequence at the full context, its candidates sharing the prefix or not.
void print_candidates(const MemoryPlan& plan, int32_t block_tokens) {
  std::printf("one sequence of %lld tokens, by who holds its context\n",
              static_cast<long long>(plan.max_context));
  for (int64_t n : {1, 2, 3, 6}) {
    int64_t bytes = bytes_with_copies(plan, block_tokens, n);
    row(n == 1 ? "all candidates of a step share it (pilotfish)"
               : std::to_string(n) + " candidates with a copy each",
        gib(bytes) + (bytes > plan.available_bytes ? " *" : "  "));
  }
  const int64_t copy =
      bytes_with_copies(plan, block_tokens, 2) - bytes_with_copies(plan, block_tokens, 1);
  std::printf(
      "  shared are the blocks of all %lld tokens in every model's plane, %s: each copy takes as "
      "much "
      "again,\n  and a figure between two rows is of a system that copies a part of them\n"
      "  * more than is free\n",
      static_cast<long long>(plan.max_context), gib(copy).c_str());
}

// This machine's device, or the described one.
Result<PlanDevice> device_of(const EngineOptions& o, const PlanRequest& request) {
  if (request.device_model.empty()) {
    Result<Device> chosen = choose_device(o);
    if (!chosen.ok()) return chosen.status();
    return PlanDevice{*chosen, n_threads_of(o), available_bytes(*chosen, o.tensor_parallel_size)};
  }
  Result<const DeviceModel*> described = find_device_model(request.device_model);
  if (!described.ok()) return described.status();
  if (Status s = check_formats(o, Device::kCuda); !s.ok()) return s;
  return PlanDevice{Device::kCuda, n_threads_of(o), (*described)->free_bytes()};
}

Status write_json(const std::string& path, const nlohmann::json& json) {
  std::ofstream out(path);
  out << json.dump(2) << "\n";
  return out.flush() ? Status() : invalid("--json " + path + ": cannot be written");
}

Status plan(EngineOptions o, const PlanRequest& request) {
  if (o.model.empty())
    return invalid(
        "--model is not set; give a file, a folder (config.json is enough) or the name of a shape");
  settle_aloud(&o);
  if (has_text(o.model)) {
    Result<ModelText> text = load_text(o.model);
    if (!text.ok()) return text.status();
    if (Status s = read_draft_tokens(text->tokenizer, &o); !s.ok()) return s;
  }
  Result<PlanDevice> device = device_of(o, request);
  if (!device.ok()) return device.status();
  Result<OpenModels> models = open_models(o, device->device, Content::kShapes);
  if (!models.ok()) return models.status();
  Result<MemoryPlan> plan = plan_memory(o, *device, models->residents(o));
  if (!plan.ok()) return plan.status();
  if (request.shared_prefix > plan->max_context)
    return invalid("--shared-prefix: more tokens than the context of " +
                   std::to_string(plan->max_context));
  print_memory(*plan, o.block_size, request);
  if (std::string w = device_warning(o); request.device_model.empty() && !w.empty())
    std::printf("note: %s\n", w.c_str());
  for (const DraftModel& draft : models->drafts)
    for (const std::string& note : draft.notes)
      std::printf("note: %s: %s\n", draft.name.c_str(), note.c_str());
  print_candidates(*plan, o.block_size);
  nlohmann::json estimate;
  if (request.estimate) {
    Result<const DeviceModel*> described = find_device_model(request.device_model);
    if (!described.ok()) return described.status();
    estimate = print_estimate(o, *plan, **described, request);
  }
  if (request.json.empty()) return {};
  nlohmann::json json = to_json(*plan);
  json["sequences"] = n_sequences_that_fit(*plan, o.block_size, 0);
  json["sequences_with_shared_prefix"] =
      n_sequences_that_fit(*plan, o.block_size, request.shared_prefix);
  for (int64_t n : {1, 2, 3, 6})
    json["candidates"].push_back(
        {{"copies", n}, {"bytes", bytes_with_copies(*plan, o.block_size, n)}});
  if (request.estimate) json["estimate"] = estimate;
  return write_json(request.json, json);
}

// Comma lists of --estimate-... to numbers; `parse` as of parse_value.h.
template <class T, class Parse>
Status set_list(const char* name, const char* example, const std::string& text, Parse parse,
                double least, double most, std::vector<T>* out) {
  if (text.empty()) return {};
  out->clear();
  for (const std::string& item : split_list(text)) {
    auto value = parse(item);
    if (!value.ok() || !(static_cast<double>(*value) >= least) ||
        static_cast<double>(*value) > most)
      return invalid(std::string(name) + " " + item + ": needs numbers in " + print_number(least) +
                     ".." + print_number(most) + ", such as " + example);
    out->push_back(*value);
  }
  return {};
}

// What is not a number yet, as given.
struct PlanTexts {
  std::string shared_prefix, batches, contexts, draft_lengths, acceptances;
};

Status read_request(const PlanTexts& texts, PlanRequest* request) {
  if (request->estimate && request->device_model.empty())
    return invalid("--estimate needs --device-model: the GPU to estimate for");
  for (auto [name, text] : {std::pair{"--estimate-batch", &texts.batches},
                            std::pair{"--estimate-context", &texts.contexts},
                            std::pair{"--estimate-tokens", &texts.draft_lengths},
                            std::pair{"--estimate-acceptance", &texts.acceptances}})
    if (!request->estimate && !text->empty())
      return invalid(std::string(name) + " needs --estimate, which it is a part of");
  std::vector<int64_t> shared;
  Status s = set_list("--shared-prefix", "64K", texts.shared_prefix, parse_token_count, 0,
                      INT32_MAX, &shared);
  if (shared.size() > 1) return invalid("--shared-prefix: needs one number, such as 64K");
  if (!shared.empty()) request->shared_prefix = shared[0];
  if (s.ok())
    s = set_list("--estimate-batch", "1,8", texts.batches, parse_integer, 1, 4096,
                 &request->batches);
  if (s.ok())
    s = set_list("--estimate-context", "2K,32K", texts.contexts, parse_token_count, 2,
                 INT32_MAX / 2, &request->contexts);
  if (s.ok())
    s = set_list("--estimate-tokens", "0,5", texts.draft_lengths, parse_integer, 0,
                 kMaxTreeNodes - 1, &request->draft_lengths);
  if (s.ok())
    s = set_list("--estimate-acceptance", "0.5,0.8", texts.acceptances, parse_number, 0, 1,
                 &request->acceptances);
  return s;
}

}  // namespace

bool load_fits(const MemoryPlan& plan, int32_t block_tokens, int64_t n_sequences, int64_t context,
               int64_t shared_prefix) {
  const int64_t shared = shared_prefix / block_tokens;
  const int64_t each = (context + kMaxTreeNodes) / block_tokens + 1;
  return shared + n_sequences * (each - shared) <= plan.affordable_blocks;
}

int64_t n_sequences_that_fit(const MemoryPlan& plan, int32_t block_tokens, int64_t shared_prefix) {
  const int64_t shared = shared_prefix / block_tokens;
  return (plan.affordable_blocks - shared) / (plan.blocks_per_sequence - shared);
}

int64_t bytes_with_copies(const MemoryPlan& plan, int32_t block_tokens, int64_t n) {
  return plan.total_bytes() - pool_bytes(plan, block_tokens) +
         n * plan.blocks_per_sequence * plan.kv_bytes_per_token * block_tokens;
}

nlohmann::json to_json(const MemoryPlan& plan) {
  nlohmann::json json = {{"total_bytes", plan.total_bytes()},
                         {"budget_bytes", plan.budget_bytes},
                         {"available_bytes", plan.available_bytes},
                         {"kv_bytes_per_token", plan.kv_bytes_per_token},
                         {"kv_blocks", plan.n_blocks},
                         {"max_context", plan.max_context},
                         {"largest_context", plan.largest_context}};
  if (plan.residents[0].n_devices > 1) {
    json["devices"] = plan.residents[0].n_devices;
    json["other_device_bytes"] = plan.other_device_bytes;
  }
  for (const MemoryPlan::Part& p : plan.parts)
    json["parts"].push_back({{"name", p.name}, {"bytes", p.bytes}});
  return json;
}

void declare_plan(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand(
      "plan",
      "Show how memory would be used and what would fit, without loading anything; exit 2 when it "
      "cannot fit. --model and --draft may also name a folder with only a config.json, or a shape "
      "such as llama-3.1-8b");
  auto config = std::make_shared<Config>();
  auto request = std::make_shared<PlanRequest>();
  auto texts = std::make_shared<PlanTexts>();
  config->declare(command, Option::Scope::kServe);
  auto add = [&](const char* name, std::string* into, const char* type, const char* help) {
    command->add_option(name, *into, help)->type_name(type)->group("Plan");
  };
  add("--device-model", &request->device_model, "NAME",
      "Plan for this GPU instead of this machine: a100-40, a100-80, a10g, h100, h200");
  add("--shared-prefix", &texts->shared_prefix, "TOKENS",
      "Tokens that all sequences have in common, such as 64K");
  add("--json", &request->json, "FILE", "Write the plan to this file");
  command
      ->add_flag(
          "--estimate", request->estimate,
          "Estimate step times, tokens/s and speed-up on that GPU, from the bytes, FLOPs and "
          "launches of its kernels")
      ->group("Plan");
  add("--estimate-batch", &texts->batches, "N,...", "Sequences in a step [1,8,32,256]");
  add("--estimate-context", &texts->contexts, "TOKENS,...", "Tokens of each [2K,32K,128K]");
  add("--estimate-tokens", &texts->draft_lengths, "K,...", "Drafted tokens [0,1,3,5,8]");
  add("--estimate-acceptance", &texts->acceptances, "A,...",
      "Share of drafted tokens that are kept [0.5,0.6,0.7,0.8,0.9]");
  command->callback([=] {
    *run = [=] {
      if (Status s = config->resolve(environ); !s.ok()) return fail(s);
      if (config->wants_print()) return std::fputs(config->print().c_str(), stdout), kOk;
      Status s = read_request(*texts, request.get());
      if (s.ok()) s = plan(config->settings().engine, *request);
      return s.ok() ? kOk : fail(s);
    };
  });
}

}  // namespace pf
