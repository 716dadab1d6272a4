#pragma once

#include "server/served_model.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace pf {

// A served model whose tokens are single bytes: token id == byte, so texts can be written down by
// hand. Beyond them: 256 ends an answer, 257 begins a turn. The logits are a little wider.
inline constexpr int32_t kEos = 256, kTurn = 257, kLogitsWidth = 300;

inline ServedModel small_model(int64_t max_context = 64) {
  Vocabulary v;
  for (int byte = 0; byte < 256; ++byte)
    append_utf8(letter_of_byte(static_cast<uint8_t>(byte)), &v.tokens.emplace_back());
  v.tokens.push_back("<|im_end|>");
  v.tokens.push_back("<|im_start|>");
  v.types.assign(258, TokenType::kNormal);
  v.types[kEos] = v.types[kTurn] = TokenType::kControl;
  v.pre = "gpt-2";
  v.eos = kEos;
  EngineInfo info;
  info.architecture = "test";
  info.vocabulary_size = kLogitsWidth;
  info.max_context = max_context;
  info.eos_ids = {kEos};
  info.drafters = {{"ngram", "ngram", "", max_context, 0}, {"model", "model", "int4", 0, 0.1f}};
  return {.name = "small",
          .info = info,
          .tokenizer = Tokenizer::create(std::move(v)).take(),
          .chat = ChatTemplate::by_name("chatml"),
          .defaults = {},
          .seed = 0,
          .max_num_seqs = 8,
          .max_num_batched_tokens = 64,
          .max_queue = 4};
}

inline std::vector<int32_t> bytes_as_tokens(std::string_view text) {
  std::vector<int32_t> ids;
  for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace pf
