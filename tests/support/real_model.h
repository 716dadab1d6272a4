#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace pf {

inline std::string in_source(const std::string& path) {
  return std::string(PF_SOURCE_DIR) + "/" + path;
}

inline std::string real_model_path() { return in_source("models/SmolLM2-135M-Instruct.Q4_1.gguf"); }
inline std::string draft_model_path() { return in_source("models/drafts/smollm2-3l/model.gguf"); }
inline std::string draft_head_path() { return in_source("models/drafts/smollm2-eagle/model.gguf"); }

inline nlohmann::json golden(const std::string& name) {
  std::ifstream in(in_source("tests/golden/" + name));
  return nlohmann::json::parse(in);
}

// Skips the test, loudly, where the model has not been fetched.
#define PF_NEEDS_REAL_MODEL()                          \
  if (!std::filesystem::exists(pf::real_model_path())) \
  GTEST_SKIP() << "models/SmolLM2-135M-Instruct.Q4_1.gguf is missing: run scripts/get_model.sh"

}  // namespace pf
