#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pf {

// U+FFFD, what an invalid sequence becomes.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What stands at the start of some bytes. `length` is the number of bytes it takes: of the code
// point, of the maximal subpart that one U+FFFD replaces (Unicode 3.9, "best practice"), or of the
// cut sequence, which runs to the end of the bytes.
struct Utf8Scan {
  enum class Verdict { kValid, kInvalid, kCut };
  Verdict verdict;
  size_t length;  // >= 1
};

// Requires: bytes is not empty.
Utf8Scan scan_utf8(std::string_view bytes);

bool is_valid_utf8(std::string_view bytes);

// The bytes with one U+FFFD for each invalid maximal subpart; equal to them when they are valid.
std::string to_valid_utf8(std::string_view bytes);

// The code point at the start of valid UTF-8, and its length in bytes.
struct CodePoint {
  char32_t value;
  size_t length;
};
// Requires: text is valid UTF-8 and not empty.
CodePoint first_code_point(std::string_view text);

// Requires: c <= 0x10FFFF and no surrogate.
void append_utf8(char32_t c, std::string* out);

// Unicode's White_Space property.
bool is_white_space(char32_t c);

// Without white space at both ends, as Python's str.strip() and Jinja's `trim` see it.
// Requires: valid UTF-8.
std::string_view strip(std::string_view text);

// Without white space at the start.
std::string_view strip_left(std::string_view text);

}  // namespace pf
