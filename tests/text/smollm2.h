#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "text/tokenizer.h"

namespace pf {

inline std::string read_golden(const std::string& name) {
  std::ifstream in(std::string(PF_SOURCE_DIR "/tests/golden/") + name);
  check(in.good(), "a golden file is missing");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The real vocabulary, as a GGUF reader fills it in.
inline Vocabulary smollm2_vocabulary() {
  const auto j = nlohmann::json::parse(read_golden("smollm2_vocabulary.json"));
  Vocabulary v;
  v.pre = j["pre"];
  std::istringstream tokens(j["tokens"].get<std::string>()), merges(j["merges"].get<std::string>());
  for (std::string line; std::getline(tokens, line);) v.tokens.push_back(line);
  v.types.assign(v.tokens.size(), TokenType::kNormal);
  for (int id : j["control"]) v.types[id] = TokenType::kControl;
  for (std::string line; std::getline(merges, line);) {
    const size_t space = line.find(' ');
    v.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  v.bos = j["bos_token_id"].get<int32_t>();
  v.eos = j["eos_token_id"].get<int32_t>();
  v.unk = j["unknown_token_id"].get<int32_t>();
  v.pad = j["padding_token_id"].get<int32_t>();
  v.chat_template = j["chat_template"];
  return v;
}

// Made once, since every test only reads it.
inline const Tokenizer& smollm2() {
  static const Tokenizer tokenizer = Tokenizer::create(smollm2_vocabulary()).take();
  return tokenizer;
}

inline const nlohmann::json& goldens() {
  static const auto j = nlohmann::json::parse(read_golden("tokenizer.json"));
  return j;
}

}  // namespace pf
