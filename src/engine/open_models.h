#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/device.h"
#include "engine/draft_models.h"
#include "engine/options.h"
#include "model/model.h"

namespace pf {

// The models that the options name, and who drafts. Not to be moved once residents() was asked:
// these point at it.
struct OpenModels {
  Device device = Device::kCpu;  // the target's
  Model target;
  // Only what a named drafter needs is here.
  std::vector<DraftModel> drafts;
  std::vector<DraftPlace> places;     // by draft
  std::vector<Device> devices;        // by draft
  std::vector<std::string> drafters;  // in order of preference; "auto" resolved

  const DraftModel* find(bool head) const;
  // The target, then the drafts in their order; blocks and context are left open.
  std::vector<ResidentModel> residents(const EngineOptions& options) const;
};

// Checks the options that can be checked without a device and opens the models for a target on
// `device`. Errors say what, where and what to do. kShapes: for a plan; reads headers or a config
// only.
Result<OpenModels> open_models(const EngineOptions& options, Device device, Content content);

}  // namespace pf
