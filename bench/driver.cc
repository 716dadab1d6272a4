#include "bench/driver.h"

#include <algorithm>
#include <numeric>

#include "bench/bench_model.h"
#include "bench/measure.h"
#include "engine/memory_plan.h"
#include "speculation/ngram_drafter.h"

namespace pf {
namespace {

Result<EngineParts> load_synthetic(const EngineOptions& o) {
  if (!o.drafts.empty())
    return invalid("--draft: a model with random weights has no draft; use --speculation ngram");
  Result<CpuOptions::Weights> weights =
      weights_of(o.quantization == "none" ? "bf16" : o.quantization);
  if (!weights.ok()) return weights.status();
  Result<Model> model = open_model(o.model, *weights);
  if (!model.ok()) return model.status();
  ResidentModel resident;
  resident.name = "target";
  resident.model = &*model;
  resident.weights = o.quantization == "none" ? "bf16" : o.quantization;
  resident.block_tokens = o.block_size;
  resident.max_rows = o.max_num_batched_tokens;
  Result<MemoryPlan> plan =
      plan_memory(o, {Device::kCpu, o.threads, available_memory_bytes()}, {resident});
  if (!plan.ok()) return plan.status();
  EngineParts parts;
  parts.pool = std::make_unique<ThreadPool>(o.threads);
  CpuOptions cpu;
  cpu.weights = *weights;
  cpu.n_blocks = plan->n_blocks;
  cpu.block_tokens = o.block_size;
  cpu.max_rows = o.max_num_batched_tokens;
  cpu.max_context = plan->max_context;
  Result<std::unique_ptr<Backend>> target = make_cpu_backend(*model, nullptr, cpu, *parts.pool);
  if (!target.ok()) return target.status().within(o.model);
  parts.step.target = target.take();
  if (o.speculation != std::vector<std::string>{"off"})
    parts.step.drafters.add(std::make_unique<NgramDrafter>(1));
  parts.step.kv = {plan->n_blocks, o.block_size, 1, false};
  parts.step.scheduler.max_num_seqs = o.max_num_seqs;
  parts.step.scheduler.max_num_batched_tokens = o.max_num_batched_tokens;
  parts.step.max_context = plan->max_context;
  parts.step.num_speculative_tokens = o.num_speculative_tokens;
  return parts;
}

bool is_synthetic(const std::string& name) {
  std::vector<std::string> names = synthetic_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

int64_t DriverRun::n_decoded() const {
  int64_t n = 0;
  for (const auto& t : tokens) n += static_cast<int64_t>(t.size()) - 1;
  return n;
}

double DriverRun::draft_s() const {
  return std::accumulate(propose_s.begin(), propose_s.end(), 0.0);
}

Result<std::unique_ptr<Driver>> Driver::create(EngineOptions options, std::span<const int> cpus) {
  options.prefix_caching = false;
  if (options.threads <= 0) options.threads = std::max<int>(1, static_cast<int>(cpus.size()));
  Result<EngineParts> parts =
      is_synthetic(options.model) ? load_synthetic(options) : load_engine(options);
  if (!parts.ok()) return parts.status();
  std::unique_ptr<Driver> driver(new Driver(parts.take()));
  pin_threads(driver->pool(), cpus);
  return driver;
}

Driver::Driver(EngineParts parts)
    : pool_(std::move(parts.pool)),
      max_context_(parts.step.max_context),
      kv_(parts.step.kv),
      max_num_seqs_(parts.step.scheduler.max_num_seqs),
      step_(std::make_unique<Step>(std::move(parts.step), clock_, &inbox_, &outbox_)) {}

Status Driver::self_test() {
  pool_->begin();
  Result<SelfTested> tested = step_->self_test();
  pool_->end();
  return tested.ok() ? Status() : tested.status();
}

void Driver::collect(DriverRun* run, size_t* n_begun, size_t* n_ended) {
  while (auto event = outbox_.try_pop()) {
    auto& tokens = run->tokens[static_cast<size_t>(event->ticket - first_ticket_)];
    if (tokens.empty() && !event->tokens.empty()) ++*n_begun;
    tokens.insert(tokens.end(), event->tokens.begin(), event->tokens.end());
    for (const VerifiedRound& round : event->rounds) {
      ++run->n_rounds;
      run->n_drafted += round.n_drafted;
      auto n = static_cast<size_t>(round.n_drafted);
      run->rounds_of.resize(std::max(run->rounds_of.size(), n + 1), 0);
      ++run->rounds_of[n];
      if (round.drafter >= 0) {
        auto d = static_cast<size_t>(round.drafter);
        run->drafted_by.resize(std::max(run->drafted_by.size(), d + 1), 0);
        run->drafted_by[d] += round.n_drafted;
      }
      run->n_accepted += round.n_accepted;
      round.count_depths(&run->drafted_at, &run->accepted_at);
    }
    if (event->finish == FinishReason::kNone) continue;
    ++*n_ended;
    run->first_token_s =
        std::max(run->first_token_s,
                 1e-6 * static_cast<double>(event->times.first_token_us - event->times.arrival_us));
  }
}

// Adds what the step has counted so far, or takes it away.
void Driver::take_times(double sign, DriverRun* run) const {
  const DraftTimes& times = step_->draft_times();
  run->propose_s.resize(times.proposing.size(), 0);
  for (size_t d = 0; d < times.proposing.size(); ++d)
    run->propose_s[d] += sign * times.proposing[d];
  run->catch_up_s += sign * times.catching_up;
  run->absorb_s += sign * times.absorbing;
  run->target_s += sign * step_->snapshot().target_seconds;
}

Status Driver::check_prompts(std::span<const std::vector<int32_t>> prompts, int32_t n) const {
  if (prompts.empty() || static_cast<int64_t>(prompts.size()) > max_num_seqs_)
    return invalid("1 to " + std::to_string(max_num_seqs_) + " prompts can run together");
  int32_t vocabulary = static_cast<int32_t>(step_->target().info().vocabulary_size);
  for (const auto& prompt : prompts) {
    if (prompt.empty() || static_cast<int64_t>(prompt.size()) + n > max_context_)
      return invalid("a prompt is empty, or longer than the context of " +
                     std::to_string(max_context_) + " with its answer");
    for (int32_t id : prompt)
      if (id < 0 || id >= vocabulary)
        return invalid("token " + std::to_string(id) + " is not in the vocabulary");
  }
  return {};
}

void Driver::submit(const std::vector<int32_t>& prompt, const DriverAsk& ask) {
  auto r = std::make_unique<Request>();
  r->ticket = next_ticket_++;
  r->prompt = prompt;
  r->stop.max_new_tokens = ask.n;
  r->stop.end_ids = ask.end_ids;
  r->sampling.temperature = ask.temperature;
  r->has_seed = true;
  r->seed = ask.seed;
  r->cache_salt = ask.salt;
  r->arrival_us = clock_.now_us();
  r->speculation.drafters = ask.drafters;
  r->speculation.tree = ask.tree;
  r->speculation.tree_nodes = ask.tree_nodes;
  r->speculation.predicted = ask.predicted;
  if (ask.k >= 0) {
    using Mode = SpeculationParams::Mode;
    r->speculation.mode = ask.k > 0 ? Mode::kFixed : Mode::kOff;
    r->speculation.n_draft_tokens = ask.k;
  }
  step_->take(std::move(r));
}

Result<DriverRun> Driver::run(std::span<const std::vector<int32_t>> prompts, int32_t n, int32_t k) {
  DriverAsk ask;
  ask.n = n;
  ask.k = k;
  return run(prompts, ask);
}

Result<DriverRun> Driver::run(std::span<const std::vector<int32_t>> prompts, const DriverAsk& ask) {
  if (Status s = check_prompts(prompts, ask.n); !s.ok()) return s;
  first_ticket_ = next_ticket_;
  for (const auto& prompt : prompts) submit(prompt, ask);
  DriverRun run;
  run.tokens.resize(prompts.size());
  size_t n_begun = 0, n_ended = 0;
  pool_->begin();
  double began = now_s(), decoding = 0;
  while (n_ended < prompts.size()) {
    step_->run();
    collect(&run, &n_begun, &n_ended);
    if (decoding > 0) ++run.n_steps;
    if (decoding == 0 && n_begun == prompts.size()) {
      take_times(-1, &run);
      decoding = now_s();
    }
  }
  pool_->end();
  run.prefill_s = decoding - began;
  run.decode_s = now_s() - decoding;
  take_times(1, &run);
  return run;
}

}  // namespace pf
