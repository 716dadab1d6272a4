#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace pf {

// Prompts of one kind, as token ids.
struct PromptKind {
  std::string name;
  std::vector<std::vector<int32_t>> prompts;
  // By prompt: the code that it asks to change, which foretells most of the answer; empty: none.
  std::vector<std::vector<int32_t>> predicted;
};
struct PromptSet {
  std::vector<PromptKind> kinds;
  std::vector<int32_t> end_ids;  // sorted; with these an answer ends
};

// Reads {"kind": ["prompt", ...], ...}: at most n of each kind, only the named kinds (none: all).
// A model with a known chat template gets each as the user's message, another one as plain text; a
// synthetic model has no tokenizer: there a byte is a token. Code stands between two lines of ```.
// Errors name file and kind.
Result<PromptSet> read_prompts(const std::string& file, const std::string& model,
                               const std::vector<std::string>& kinds, int n);

}  // namespace pf
