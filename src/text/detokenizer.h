#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace pf {

// Token ids to text, as they come. What it gives out is always whole code points: a sequence that
// may still become one is held back, and one that is known to be invalid becomes U+FFFD at once
// (one for each maximal subpart). The text so far plus flush() is the decoded whole, wherever the
// tokens were cut.
class Detokenizer {
 public:
  struct Options {
    bool skip_special = true;
    // The ids begin a text (they do not go on after a prompt): SentencePiece's prefix space, which
    // the encoder put there, is taken off again.
    bool at_text_start = false;
  };
  enum class Cut { kReplace, kDrop };  // what becomes of a code point cut at the end

  // `tokenizer` must outlive this detokenizer.
  Detokenizer(const Tokenizer& tokenizer, Options options);

  // Appends to *out the text that this token completes.
  void append(int32_t id, std::string* out);
  // The same, showing the token even when it is special.
  void append_shown(int32_t id, std::string* out);
  // The end: gives out U+FFFD for a cut code point, or nothing with kDrop.
  std::string flush(Cut cut = Cut::kReplace);

 private:
  void add_bytes(std::string_view bytes, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool strip_space_;     // the next text loses one space at its start
  std::string pending_;  // the first 1..3 bytes of a code point
};

}  // namespace pf
