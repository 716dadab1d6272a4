#pragma once

#include "base/status.h"
#include "engine/engine.h"
#include "proto/pilotfish/v1/admin.pb.h"

namespace pf {

// Changes *policy as `wanted` says; what it does not set stays. INVALID_ARGUMENT names the field
// and its limit, and then nothing has changed.
Status change_policy(const pilotfish::v1::Policy& wanted, const EngineInfo& info,
                     EnginePolicy* policy);

// What holds, in the words of the wire.
void describe(const EnginePolicy& policy, pilotfish::v1::Policy* out);

}  // namespace pf
