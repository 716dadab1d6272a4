#pragma once

#include <string>

#include "base/status.h"

namespace pf {

// Where the files of a model lie, and in which form: the one answer for its weights and its text.
struct ModelFiles {
  enum class Form {
    kGguf,         // one file with everything
    kSafetensors,  // one file, config.json beside it
    kShards,       // several, listed in an index
    kMedusa,       // heads as published
    kConfigOnly,   // no weights: enough for a plan
  };
  Form form = Form::kGguf;
  std::string weights;             // the file, or the index of the shards; empty: kConfigOnly
  std::string folder;              // where config.json and the tokenizer's files are looked for
  std::string medusa_config = {};  // kMedusa: config.json's text, where it speaks of the heads
};

// `path` is a folder, a .safetensors file, or a file that is taken for a GGUF whatever it is
// called. Errors name the path: it is not there, or holds none or several models.
Result<ModelFiles> find_model_files(const std::string& path);

// The one .gguf file of a folder. Errors: none, several.
Result<std::string> only_gguf_in(const std::string& folder);

}  // namespace pf
