#pragma once

#include <cstdint>
#include <string>

#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace pf {

// One answer as text: token ids in, deltas out, until a stop string ends it. The joined deltas and
// the rest that finish() gives are the same bytes however the tokens were grouped, so unary and
// streamed answers are equal when both are made here.
class TextStream {
 public:
  struct Options {
    bool skip_special = true;
    bool include_stop_string = false;
    bool at_text_start = false;  // see Detokenizer
  };
  struct Delta {
    std::string text;     // whole code points; never a byte that may belong to a stop string
    int stopped_by = -1;  // which stop string ended the text, -1: none did
    bool stopped() const { return stopped_by >= 0; }
  };

  // Both must outlive this stream.
  TextStream(const Tokenizer& tokenizer, const StopMatcher& stops, Options options);

  // The token's text. A stop string that is completed while may_stop is false (min_new_tokens not
  // reached) stays text. Requires: not stopped before.
  Delta push(int32_t id, bool may_stop = true);

  // A stop token or EOS, which ends the answer: adds text only with include_stop_string.
  std::string push_stop_token(int32_t id);

  // The end without a stop string: all that was held back. A code point that the length limit cut
  // is dropped. Empty after a stop.
  std::string finish();

 private:
  Delta take(std::string_view text, bool may_stop);

  Detokenizer detokenizer_;
  const StopMatcher* stops_;
  bool include_stop_string_;
  bool stopped_ = false;
  StopMatcher::State state_ = StopMatcher::kStart;
  std::string held_;  // the bytes that may begin a stop string
};

}  // namespace pf
