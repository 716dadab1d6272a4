#pragma once

#include <string_view>

#include "base/status.h"
#include "proto/pilotfish/v1/inference.pb.h"
#include "server/served_model.h"

namespace pf {

namespace wire = pilotfish::v1;

// The border: refuses every request that the engine could not take as it is. The message names the
// field and its limit and never repeats what the client wrote. Costs no tokenising; what needs the
// prompt's tokens is checked by make_request.
Status check_request(const wire::GenerateRequest& request, const ServedModel& model);

// NOT_FOUND unless `name` is empty or the served model's.
Status check_model_name(std::string_view name, const ServedModel& model);

// [A-Za-z0-9._:-], at most kMaxRequestIdBytes; empty is fine.
bool is_request_id(std::string_view id);

}  // namespace pf
