#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "speculation/draft_length.h"

namespace pf {

// What operators may change while the engine runs; a change holds from the next step on. Nothing
// here changes what exact rules say.
struct EnginePolicy {
  bool speculation = true;  // false: nobody drafts, whatever requests ask for
  // Of threshold rules that name no alpha: dynamic, or this.
  bool dynamic_alpha = false;
  float alpha = 1;
  // Instead of every alpha that is not the request's own number, dynamic ones included.
  std::optional<float> pinned_alpha;
  LengthRule draft_length = LengthRule::kFixed;
  int32_t num_draft_tokens = 0;       // the server's: exactly or at most
  std::vector<std::string> drafters;  // who may draft, by name
};

}  // namespace pf
