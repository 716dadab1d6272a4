#pragma once

#include <string>
#include <vector>

#include "engine/options.h"

namespace pf {

// What of the options cannot be as it was asked for, or changes nothing: put right, and one line
// each to be said. Threads beyond the CPUs of this process would only wait for each other.
std::vector<std::string> settle(EngineOptions* options);

// --alpha beside a rule that has no use for it, where requests name no rule of their own; "": none.
std::string unused_alpha(const EngineOptions& options);

// The same as settle, said on stderr: for commands without a log.
void settle_aloud(EngineOptions* options);

}  // namespace pf
