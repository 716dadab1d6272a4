#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "model/config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pf {

// What the files of a model say of its text.
struct ModelText {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;
  GenerationDefaults generation;
};

// Reads the tokenizer, the chat template and the generation defaults of a model as load_model would
// open it: from a .gguf file's metadata, or from tokenizer.json (or tokenizer.model) beside the
// weights. Errors name the file and the key.
Result<ModelText> load_text(const std::string& model_path);

// The same of a model that is to answer: of a draft, which may have no text, the error says that.
Result<ModelText> load_target_text(const std::string& model_path);

// Whether there is a tokenizer to read at all; false also for what is no model.
bool has_text(const std::string& model_path);

}  // namespace pf
