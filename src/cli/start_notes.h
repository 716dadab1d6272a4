#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/options.h"

namespace pf {

// What options cost that a user may not expect, a line each, for the log of the start.
std::vector<std::string> start_notes(const EngineOptions& options);

// What a draft step costs, in target steps, whoever makes it: a model as measured at the start,
// heads and first layers by the bytes that they read.
struct DraftCost {
  std::string drafter;
  double ratio = 0;
  bool measured = false;
  std::string warning = {};  // of more than .1, and again of more than .3; empty: it is cheap
};
// `measured`: by drafter, 0 where nothing was. Those that cost nothing are left out.
std::vector<DraftCost> draft_costs(const std::vector<DrafterDescription>& drafters,
                                   const std::vector<double>& measured);

}  // namespace pf
