#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "batch/request.h"
#include "server/answer_options.h"
#include "server/check_request.h"

namespace pf {

// A call ready to be submitted: what the engine gets, and how its tokens become the answer. The
// caller still sets ticket, deadline, cancel and answer.request_id.
struct PreparedRequest {
  std::unique_ptr<Request> request;
  AnswerOptions answer;
};

// Tokenises the prompt and fills in every default. Requires: check_request was ok.
// INVALID_ARGUMENT: a prompt without tokens, prompt or predicted text beyond the context, a stop
// string that is no UTF-8, messages that the template refuses.
Result<PreparedRequest> make_request(const wire::GenerateRequest& request, const ServedModel& model,
                                     int64_t arrival_us);

// The tokens of `text` or `messages`. Errors as above; only kMaxRequestBytes bounds the length.
Result<std::vector<int32_t>> tokens_of_text(const std::string& text, bool add_special,
                                            bool parse_special, const ServedModel& model);
Result<std::vector<int32_t>> tokens_of_messages(const wire::Messages& messages,
                                                const ServedModel& model);

}  // namespace pf
