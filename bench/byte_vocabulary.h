#pragma once

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace pf {

// A vocabulary whose token ids are the bytes; others may follow them.
inline Vocabulary byte_vocabulary() {
  Vocabulary v;
  v.pre = "gpt-2";
  for (int b = 0; b < 256; ++b)
    append_utf8(letter_of_byte(static_cast<uint8_t>(b)), &v.tokens.emplace_back());
  return v;
}

}  // namespace pf
