#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "engine/load.h"
#include "engine/options.h"

namespace pf {

// Those that --speculation can name.
std::span<const std::string_view> known_drafters();
// What --speculation says.
bool wants(const EngineOptions& options, const std::string& drafter);
bool is_off(const EngineOptions& options);
bool is_auto(const EngineOptions& options);
// What requests and --speculation call something else than a draft that was given: no draft of
// another kind may have such a name.
bool is_drafter_name(const std::string& name);
// Whether --draft is opened at all.
bool needs_drafts(const EngineOptions& options);
// Refuses names that nobody knows.
Status check_speculation(const EngineOptions& options);

// N-grams, filtered by the draft models that reside in `parts`, one after another in the order of
// --draft. They belong to the drafters that they are also.
Status add_cascade(const EngineOptions& options, EngineParts* parts);

}  // namespace pf
