#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/check_request.h"

namespace pf {

// What `generate` is asked, as the command line says it; nothing where it does not.
struct GenerateOptions {
  std::optional<std::string> prompt, prompt_file, predicted_file;
  bool chat = false, json = false, stats = false, quiet = false;
  std::optional<uint32_t> max_new_tokens;
  std::optional<float> temperature, top_p;
  std::optional<int32_t> top_k;
  std::vector<std::string> stop;
};

// Reads the files that are named and makes the request. What no model could answer is refused here,
// before one is loaded, by the names of the flags.
Result<wire::GenerateRequest> make_generate_request(const GenerateOptions& options);

// A refusal of the server's border, which speaks of a request's fields, in words of the flags.
// `context_is_set`: by --max-model-len; otherwise the context is the model's own, and no flag makes
// it longer.
Status in_flags(const Status& refusal, bool context_is_set);

}  // namespace pf
