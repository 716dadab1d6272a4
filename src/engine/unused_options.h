#pragma once

#include <string>
#include <vector>

#include "engine/options.h"

namespace pf {

// What was set and changes nothing, one line each that names the flag and why. No refusals: a
// configuration may say more than one run of it uses.
std::vector<std::string> unused_options(const EngineOptions& options);

}  // namespace pf
