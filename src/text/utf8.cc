#include "text/utf8.h"

#include "base/check.h"

namespace pf {
namespace {

// How many bytes follow a lead byte and where the first of them must lie (Unicode, table 3-7);
// the others lie in 80..BF.
struct Lead {
  int n_following;  // -1: not a lead byte
  uint8_t low, high;
};

Lead lead_of(uint8_t b) {
  if (b < 0x80) return {0, 0, 0};
  if (b < 0xC2) return {-1, 0, 0};
  if (b < 0xE0) return {1, 0x80, 0xBF};
  if (b == 0xE0) return {2, 0xA0, 0xBF};
  if (b == 0xED) return {2, 0x80, 0x9F};
  if (b < 0xF0) return {2, 0x80, 0xBF};
  if (b == 0xF0) return {3, 0x90, 0xBF};
  if (b < 0xF4) return {3, 0x80, 0xBF};
  if (b == 0xF4) return {3, 0x80, 0x8F};
  return {-1, 0, 0};
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

}  // namespace

Utf8Scan scan_utf8(std::string_view bytes) {
  debug_check(!bytes.empty(), "nothing to scan");
  using enum Utf8Scan::Verdict;
  const Lead lead = lead_of(static_cast<uint8_t>(bytes[0]));
  if (lead.n_following < 0) return {kInvalid, 1};
  uint8_t low = lead.low, high = lead.high;
  for (size_t i = 1; i <= static_cast<size_t>(lead.n_following); ++i) {
    if (i == bytes.size()) return {kCut, i};
    const auto b = static_cast<uint8_t>(bytes[i]);
    if (b < low || b > high) return {kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {kValid, static_cast<size_t>(lead.n_following) + 1};
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Scan s = scan_utf8(bytes);
    if (s.verdict != Utf8Scan::Verdict::kValid) return false;
    bytes.remove_prefix(s.length);
  }
  return true;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Scan s = scan_utf8(bytes);
    out += s.verdict == Utf8Scan::Verdict::kValid ? bytes.substr(0, s.length) : kReplacement;
    bytes.remove_prefix(s.length);
  }
  return out;
}

CodePoint first_code_point(std::string_view text) {
  const auto b = static_cast<uint8_t>(text[0]);
  if (b < 0x80) return {b, 1};
  const size_t n = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
  debug_check(n <= text.size(), "not valid UTF-8");
  char32_t c = b & (0x7F >> n);
  for (size_t i = 1; i < n; ++i) c = (c << 6) | (static_cast<uint8_t>(text[i]) & 0x3F);
  return {c, n};
}

void append_utf8(char32_t c, std::string* out) {
  const auto put = [&](char32_t b) { out->push_back(static_cast<char>(b)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      put(0xE0 | (c >> 12));
    } else {
      put(0xF0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3F));
    }
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    if (!is_python_space(c.value)) break;
    text.remove_prefix(c.length);
  }
  return text;
}

std::string_view strip(std::string_view text) {
  text = strip_left(text);
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_python_space(first_code_point(text.substr(at)).value)) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace pf
