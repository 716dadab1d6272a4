#pragma once

#include <string>
#include <vector>

#include "engine/options.h"

namespace pf {

// What options cost that a user may not expect, a line each, for the log of the start.
std::vector<std::string> start_notes(const EngineOptions& options);

}  // namespace pf
