#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.h"
#include "base/status.h"
#include "server/call.h"
#include "server/engine_port.h"
#include "server/log.h"
#include "server/metrics.h"

namespace pf {

// Knows every call in flight. One thread of its own takes the engine's events, makes text of them
// and hands it to the calls; other threads add calls and cancel them.
class Dispatcher {
 public:
  // All must outlive the dispatcher.
  Dispatcher(EnginePort port, const Clock& clock, Metrics& metrics, Log& log);
  ~Dispatcher();

  // Hands the request to the engine. ALREADY_EXISTS: a call with its request_id is in flight.
  // RESOURCE_EXHAUSTED: the engine's queue is full. Fills in the ticket. A refused call stays the
  // caller's alone.
  Status submit(std::unique_ptr<Request> request, std::shared_ptr<Call> call);

  // The client is gone, or too slow.
  void cancel(Call& call);

  // An operator's word: the call with this request_id ends ABORTED with what there is. False: there
  // is none.
  bool abort(const std::string& request_id);

  int64_t n_in_flight() const;
  // Waits for the last call; false when the time was over first.
  bool wait_until_idle(int64_t timeout_us);
  // When calls in flight last moved on: 0 when none is in flight.
  int64_t waiting_since_us() const;

 private:
  void run();
  void take(Event event);
  void tick();
  void end_what_is_of_no_use(Call& call);
  void count(Call& call, const CompletionRecord& record, int64_t now_us);
  void end(const Call& call);

  EnginePort port_;
  const Clock& clock_;
  Metrics& metrics_;
  Log& log_;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::unordered_map<uint64_t, std::shared_ptr<Call>> calls_;  // by ticket; guarded by mutex_
  std::unordered_set<std::string> ids_;                        // in flight; guarded by mutex_
  uint64_t last_ticket_ = 0;                                   // guarded by mutex_
  int64_t progress_us_ = 0;                                    // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace pf
