#pragma once

#include <functional>
#include <memory>

#include "base/bounded_queue.h"
#include "batch/request.h"
#include "engine/event.h"
#include "engine/policy.h"

namespace pf {

// What the server asks of an engine, so that a test can stand a scripted one behind it. Every
// function may be called by any thread; see engine/engine.h for what each does.
struct EnginePort {
  std::function<bool(std::unique_ptr<Request>&)> submit;
  std::function<void(uint64_t)> cancelled;
  std::function<void(FinishReason)> finish_all;
  std::function<Snapshot()> snapshot;
  std::function<EnginePolicy()> policy;
  std::function<void(const EnginePolicy&)> set_policy;
  BoundedQueue<Event>* outbox = nullptr;
};

template <class E>
EnginePort port_of(E& engine) {
  return {.submit = [&engine](std::unique_ptr<Request>& r) { return engine.submit(r); },
          .cancelled = [&engine](uint64_t ticket) { engine.cancelled(ticket); },
          .finish_all = [&engine](FinishReason reason) { engine.finish_all(reason); },
          .snapshot = [&engine] { return engine.snapshot(); },
          .policy = [&engine] { return engine.policy(); },
          .set_policy = [&engine](const EnginePolicy& policy) { engine.set_policy(policy); },
          .outbox = &engine.outbox()};
}

}  // namespace pf
