#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/device.h"
#include "engine/options.h"
#include "model/model.h"

namespace pf {

// The models that the options name, and who drafts. Not to be moved once residents() was asked:
// these point at it.
struct OpenModels {
  Model target;
  // May borrow from the target. Only what a named drafter needs is here; what they are made from is
  // named for messages.
  std::optional<Model> draft, head;
  DraftOption draft_from, head_from;
  std::vector<std::string> drafters;  // in order of preference; "auto" resolved

  // Target, draft model, head, in the order of their planes; blocks and context are left open.
  std::vector<ResidentModel> residents(const EngineOptions& options, Device device) const;
};

// Checks the options that can be checked without a device and opens the models. Errors say what,
// where and what to do. kShapes: for a plan; reads headers or a config only.
Result<OpenModels> open_models(const EngineOptions& options, Content content);

}  // namespace pf
