#pragma once

#include <map>
#include <string>

#include "cli/settings.h"

namespace pf {

// The memory plan of an engine as `settings` say it, with `flags` over them, by the names of the
// command line ("max-model-len": "32K"). Opens the model files, takes no memory.
Result<MemoryFigures> plan_with_flags(const Settings& settings,
                                      const std::map<std::string, std::string>& flags);

}  // namespace pf
