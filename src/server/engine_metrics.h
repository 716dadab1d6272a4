#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <vector>

#include "engine/event.h"
#include "server/served_model.h"

namespace pf {

// The engine's figures as Prometheus families, names as vLLM's. `before` is a snapshot of about a
// minute ago: rates and means are of the time since. `age_us`: since the last step, 0 when idle.
std::vector<prometheus::MetricFamily> engine_metrics(const Snapshot& now, const Snapshot& before,
                                                     const EngineInfo& info, int64_t age_us);

}  // namespace pf
