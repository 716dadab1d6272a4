#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/stop_matcher.h"

namespace pf {

// How the tokens of one request become its answer, worked out at the border.
struct AnswerOptions {
  std::string request_id;
  std::vector<int32_t> prompt;  // kept only when prompt_logprobs need the ids
  int64_t n_prompt = 0;
  int32_t n = 1;
  uint64_t seed = 0;  // the one used

  StopMatcher stops;
  bool include_stop_string = false;
  int32_t min_new_tokens = 0;
  std::vector<int32_t> eos_ids;  // end tokens that count as EOS; other ones are stop tokens

  bool token_ids = false, logprobs = false, token_origins = false, timing = false;
  int32_t min_chunk_tokens = 0;
  int64_t min_chunk_us = 0;
  std::vector<std::string> drafter_names;  // by drafter index
};

}  // namespace pf
