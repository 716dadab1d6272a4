#include "text/normalize.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "base/check.h"
#include "text/utf8.h"

namespace pf {
namespace {

constexpr int kMaxMarks = 1024;

void append_normalized(std::string_view text, const icu::Normalizer2& normalizer,
                       std::string* out) {
  UErrorCode error = U_ZERO_ERROR;
  icu::StringByteSink<std::string> sink(out);
  normalizer.normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<int32_t>(text.size())),
                           sink, nullptr, error);
  check(U_SUCCESS(error) != 0, "ICU cannot normalise valid text");
}

}  // namespace

std::string normalized(std::string_view text, UnicodeForm form) {
  if (form == UnicodeForm::kAsIs) return std::string(text);
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = form == UnicodeForm::kNfc
                                           ? icu::Normalizer2::getNFCInstance(error)
                                           : icu::Normalizer2::getNFKCInstance(error);
  check(U_SUCCESS(error) != 0, "ICU has no normalisation data");
  std::string out;
  out.reserve(text.size());
  constexpr size_t kMaxPart = size_t{1} << 30;  // ICU counts in int32
  size_t begin = 0;
  int n_marks = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = first_code_point(text.substr(i));
    const bool starter = c.value < 0x300 || u_getCombiningClass(static_cast<UChar32>(c.value)) == 0;
    n_marks = starter ? 0 : n_marks + 1;
    if (n_marks > kMaxMarks || (starter && i - begin > kMaxPart)) {
      append_normalized(text.substr(begin, i - begin), *normalizer, &out);
      begin = i;
      n_marks = 0;
    }
    i += c.length;
  }
  append_normalized(text.substr(begin), *normalizer, &out);
  return out;
}

std::string with_space_marks(std::string_view text, bool remove_extra_spaces) {
  if (remove_extra_spaces) {
    while (text.ends_with(' ')) text.remove_suffix(1);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  char before = 0;
  for (char c : text) {
    if (c != ' ')
      out += c;
    else if (!remove_extra_spaces || before != ' ')
      out += kSpaceMark;
    before = c;
  }
  return out;
}

std::string without_space_marks(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size();) {
    if (token.substr(i).starts_with(kSpaceMark)) {
      out += ' ';
      i += kSpaceMark.size();
    } else {
      out += token[i++];
    }
  }
  return out;
}

}  // namespace pf
