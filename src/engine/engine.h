#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "batch/request.h"
#include "engine/event.h"
#include "engine/memory_figures.h"
#include "engine/options.h"
#include "engine/policy.h"
#include "engine/self_tested.h"

namespace pf {

class Step;
struct EngineParts;

struct DrafterDescription {
  std::string name, kind, quantization;
  int64_t max_context = 0;
  float step_cost_ratio = 0;  // bytes of a draft step over bytes of a target step
};

// What clients may know of the resident model; fixed once the engine is made.
struct EngineInfo {
  std::string architecture, dtype, kv_dtype, device;
  int64_t vocabulary_size = 0;  // width of the logits
  int64_t max_context = 0;
  std::vector<int32_t> eos_ids;
  std::vector<DrafterDescription> drafters;
  std::vector<std::string> notes;  // how drafts differ from the target, and what is done about it
  int64_t weight_bytes = 0, kv_bytes = 0, scratch_bytes = 0;
  MemoryFigures memory;  // as planned
};

// The engine thread and its two queues. Requests go in, events come out; nothing else is shared.
class Engine {
 public:
  // Loads everything; errors say which file or flag is at fault. `clock` outlives the engine.
  // `progress`: as load_engine's (engine/load.h).
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options, const Clock& clock,
                                                Progress* progress = nullptr);
  // From parts that a test or a loader has put together.
  Engine(EngineParts parts, const Clock& clock);
  ~Engine();  // stops the thread; unfinished requests get no further event
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineInfo& info() const { return info_; }

  // Computes a handful of tokens to see that this machine does it right, and measures what passes
  // cost: a draft step over a target step, by drafter. Requires: not started, no request taken.
  Result<SelfTested> self_test();

  void start();  // the thread; until then (in tests) step_once drives

  // Any thread. False: max_queue requests wait already, or the engine stops; the request stays with
  // the caller.
  bool submit(std::unique_ptr<Request>& request);
  // Any thread: a bit of that request's cancel flag has been raised. The next step looks at it,
  // wherever the request stands; one that is over already, or was never taken, is no matter.
  void cancelled(uint64_t ticket);
  // Any thread: finish what has begun with `reason` (kShutdown: unfinished sequences end at the
  // next step).
  void finish_all(FinishReason reason);

  // Consumers pop events here; one that does not keep up delays only the events.
  BoundedQueue<Event>& outbox() { return outbox_; }

  Snapshot snapshot() const;  // any thread

  // Any thread: what holds from the next step on. Drafters are names of info().drafters.
  EnginePolicy policy() const;
  void set_policy(const EnginePolicy& policy);

  // One step on the calling thread; false when there was nothing to do. Requires: not started.
  bool step_once();

 private:
  void run();
  void take_policy();

  EngineInfo info_;
  const Clock& clock_;
  BoundedQueue<std::unique_ptr<Request>> inbox_;
  BoundedQueue<Event> outbox_;
  std::atomic<bool> stop_{false};
  std::atomic<FinishReason> finish_all_{FinishReason::kNone};
  const int64_t max_queue_;
  mutable std::mutex policy_mutex_;
  EnginePolicy policy_;  // guarded by policy_mutex_
  std::atomic<bool> new_policy_{false};
  std::unique_ptr<ThreadPool> pool_;  // the CPU backends' threads; may be null
  std::unique_ptr<Step> step_;        // owned by the engine thread once started
  std::thread thread_;
};

}  // namespace pf
