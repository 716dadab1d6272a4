#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct pcre2_real_code_8;

namespace pf {

// How much work one encoding took; tests hold its growth down.
struct EncodeWork {
  int64_t regex_calls = 0;
  int64_t regex_limits = 0;  // pieces that were cut by the safe rule instead
  int64_t merge_pops = 0;    // entries taken from the merge queue
};

// Cuts text into the pieces inside which tokens are merged, with PCRE2. Immutable: any number of
// threads may call split at once.
//
// The patterns are those that models publish, written for engines in which \s is Unicode's
// White_Space; PCRE2's \s has one code point more, so \s and \S are spelled out before compiling.
// A match that needs more work than its limit is given up: the rest of that piece is cut before
// each run of white space instead, which is linear and loses nothing but token quality.
class PreTokenizer {
 public:
  // UNIMPLEMENTED for a name that is not known, INVALID_ARGUMENT for a pattern that is wrong.
  static Result<PreTokenizer> create(const std::vector<std::string>& patterns);

  // The patterns that a GGUF name stands for.
  static Result<std::vector<std::string>> patterns_of(const std::string& name);

  // Calls visit for each piece, in order; the pieces joined are the text.
  // Requires: text is valid UTF-8.
  void split(std::string_view text, EncodeWork* work,
             const std::function<void(std::string_view)>& visit) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };
  struct Scratch;

  void split_from(size_t step, std::string_view text, Scratch* scratch,
                  const std::function<void(std::string_view)>& visit) const;

  std::vector<std::unique_ptr<pcre2_real_code_8, FreeCode>> steps_;
};

// The pattern of GPT-2, which Hugging Face's ByteLevel applies by itself.
extern const std::string_view kGpt2Pattern;

}  // namespace pf
