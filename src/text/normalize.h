#pragma once

#include <string>
#include <string_view>

#include "text/vocabulary.h"

namespace pf {

// U+2581, SentencePiece's visible space.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

// Text in a Unicode normalisation form (ICU). A run of more than 1,024 combining marks, which no
// language has, is normalised in parts, since ordering a run costs its square.
// Requires: valid UTF-8.
std::string normalized(std::string_view text, UnicodeForm form);

// Spaces to space marks and, on demand, runs of spaces to one and none at both ends.
std::string with_space_marks(std::string_view text, bool remove_extra_spaces);

// Space marks to spaces.
std::string without_space_marks(std::string_view token);

}  // namespace pf
