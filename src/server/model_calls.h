#pragma once

#include "server/check_request.h"

namespace pf {

// The calls that need no engine. INVALID_ARGUMENT names the field.
Status tokenize(const wire::TokenizeRequest& request, const ServedModel& model,
                wire::TokenizeResponse* response);
Status detokenize(const wire::DetokenizeRequest& request, const ServedModel& model,
                  wire::DetokenizeResponse* response);
void describe(const ServedModel& model, wire::ModelInfo* info);

}  // namespace pf
