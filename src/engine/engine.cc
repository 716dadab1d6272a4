#include "engine/engine.h"

#include "base/thread_name.h"
#include "engine/load.h"
#include "engine/step.h"

namespace pf {
namespace {

// Events that may wait for the server's dispatcher before they are joined per completion.
constexpr size_t kOutboxEvents = 4096;

EnginePolicy policy_of(const EngineInfo& info, const StepParts& step) {
  EnginePolicy policy;
  policy.dynamic_alpha = step.dynamic_alpha;
  policy.alpha = step.policy.alpha;
  policy.draft_length = step.length.rule;
  policy.num_draft_tokens = step.num_speculative_tokens;
  for (const DrafterDescription& d : info.drafters) policy.drafters.push_back(d.name);
  return policy;
}

}  // namespace

Engine::Engine(EngineParts parts, const Clock& clock)
    : info_(std::move(parts.info)),
      clock_(clock),
      inbox_(static_cast<size_t>(parts.max_queue)),
      outbox_(kOutboxEvents),
      max_queue_(parts.max_queue),
      policy_(policy_of(info_, parts.step)),
      pool_(std::move(parts.pool)),
      step_(std::make_unique<Step>(std::move(parts.step), clock, &inbox_, &outbox_)) {}

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options, const Clock& clock,
                                               Progress* progress) {
  Result<EngineParts> parts = load_engine(options, progress);
  if (!parts.ok()) return parts.status();
  return std::make_unique<Engine>(parts.take(), clock);
}

Engine::~Engine() {
  stop_.store(true);
  inbox_.wake();
  if (thread_.joinable()) thread_.join();
}

Result<SelfTested> Engine::self_test() {
  if (pool_) pool_->begin();
  Result<SelfTested> tested = step_->self_test();
  if (pool_) pool_->end();
  return tested;
}

void Engine::start() {
  thread_ = std::thread([this] { run(); });
}

bool Engine::submit(std::unique_ptr<Request>& request) {
  if (stop_.load(std::memory_order_relaxed) ||
      static_cast<int64_t>(inbox_.size()) + step_->n_waiting() >= max_queue_)
    return false;
  return inbox_.try_push(std::move(request));
}

void Engine::cancelled(uint64_t ticket) {
  step_->cancelled(ticket);
  inbox_.wake();
}

void Engine::finish_all(FinishReason reason) {
  finish_all_.store(reason);
  inbox_.wake();
}

Snapshot Engine::snapshot() const { return step_->snapshot(); }

EnginePolicy Engine::policy() const {
  std::lock_guard lock(policy_mutex_);
  return policy_;
}

void Engine::set_policy(const EnginePolicy& policy) {
  std::lock_guard lock(policy_mutex_);
  policy_ = policy;
  new_policy_.store(true);
}

void Engine::take_policy() {
  if (!new_policy_.load(std::memory_order_relaxed) || !new_policy_.exchange(false)) return;
  step_->set_policy(policy());
}

bool Engine::step_once() {
  take_policy();
  FinishReason reason = finish_all_.exchange(FinishReason::kNone);
  if (reason != FinishReason::kNone) step_->finish_everything(reason);
  return step_->run();
}

void Engine::run() {
  name_this_thread("pf-engine");
  // While events wait for room in the outbox, look again soon; else sleep until something comes.
  constexpr std::chrono::microseconds kRetry(2000);
  bool spinning = false;
  while (!stop_.load()) {
    if (step_once()) {
      if (!spinning && pool_) pool_->begin();
      spinning = true;
      continue;
    }
    if (spinning && pool_) pool_->end();
    spinning = false;
    auto request = step_->idle() ? inbox_.pop() : inbox_.pop_for(kRetry);
    if (request) step_->take(std::move(*request));
  }
  if (pool_) pool_->end();
}

}  // namespace pf
