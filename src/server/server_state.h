#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/cpus.h"
#include "server/auth.h"
#include "server/dispatcher.h"
#include "server/engine_port.h"
#include "server/handlers.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/text_size.h"
#include "server/text_workers.h"

namespace pf {

// The engine and its model, once there are any.
struct Backing {
  Backing(ServedModel model, EnginePort engine, const Clock& clock, Metrics& metrics, Log& log)
      : model(measured(std::move(model))), port(engine), dispatcher(engine, clock, metrics, log) {}

  const ServedModel model;
  const EnginePort port;
  Dispatcher dispatcher;

 private:
  static ServedModel measured(ServedModel model) {
    model.token_bytes = token_bytes_of(model.tokenizer);
    return model;
  }
};

// What every call looks at first. Any thread.
struct ServerState {
  enum class Phase { kLoading, kReady, kDraining };

  ServerState(const Clock& clock, Log& log, Metrics& metrics)
      : clock(clock), log(log), metrics(metrics) {}

  const Clock& clock;
  Log& log;
  Metrics& metrics;
  Auth auth;
  int64_t slow_reader_us = 30'000'000;  // a message that waits longer ends its call
  std::unique_ptr<Backing> backing;     // set once, before kReady
  std::atomic<Phase> phase{Phase::kLoading};
  std::atomic<bool> failed{false};      // the engine hangs, or the port is deaf: the process ends
  std::atomic<bool> ending{false};      // the drain's time is over: nothing goes to the engine now
  std::mutex policy_mutex;              // held by whoever changes the engine's policy
  std::atomic<int64_t> n_preparing{0};  // calls between the queue check and the queue
  std::atomic<int64_t> n_open{0};       // replies that gRPC still works on
  Handlers handlers;
  TextWorkers long_texts{text_threads(), kMostWaitingTexts};

 private:
  static constexpr size_t kMostWaitingTexts = 32;  // of up to kMaxRequestBytes each
  static int text_threads() {                      // most CPUs belong to the engine
    return std::clamp(n_usable_cpus() / 4, 1, 4);
  }
};

}  // namespace pf
