#include "server/text_size.h"

#include <algorithm>
#include <cstdio>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace pf {
namespace {

namespace wire = pilotfish::v1;

constexpr int64_t kIdBytes = 4;
// Unicode's normal forms make of 4 bytes one at the utmost: a letter of the mathematical alphabets
// becomes a plain one.
constexpr int64_t kNormalFormShrinks = 4;

int64_t content_bytes(const wire::Messages& messages) {
  int64_t n = 0;
  for (const wire::Message& m : messages.messages())
    n += static_cast<int64_t>(strip(m.content()).size());
  return n;
}

// Whether a token stands for this byte alone: if not, it may be dropped where it stands by itself.
bool knows(const Tokenizer& tokenizer, uint8_t byte) {
  const bool letters = tokenizer.vocabulary().kind == VocabularyKind::kByteLevelBpe;
  std::string token;
  char code[16];
  std::snprintf(code, sizeof(code), "<0x%02X>", static_cast<unsigned>(byte));
  append_utf8(letter_of_byte(byte), &token);
  return tokenizer.find(letters ? token : code).has_value();
}

}  // namespace

int64_t text_bytes(const wire::GenerateRequest& r) {
  const auto predicted = static_cast<int64_t>(r.speculation().predicted_text().size());
  return predicted +
         (r.has_messages() ? content_bytes(r.messages()) : static_cast<int64_t>(r.text().size()));
}

int64_t TokenBytes::counted_in(std::string_view text) const {
  return std::count_if(text.begin(), text.end(),
                       [&](char c) { return counted[static_cast<uint8_t>(c)]; });
}

int64_t TokenBytes::counted_in_prompt(const wire::GenerateRequest& r) const {
  if (!r.has_messages()) return counted_in(r.text());
  int64_t n = 0;
  for (const wire::Message& m : r.messages().messages()) n += counted_in(strip(m.content()));
  return n;
}

int64_t text_bytes(const wire::TokenizeRequest& r) {
  return r.has_messages() ? content_bytes(r.messages()) : static_cast<int64_t>(r.text().size());
}

int64_t text_bytes(const wire::DetokenizeRequest& r) { return kIdBytes * r.ids_size(); }

TokenBytes token_bytes_of(const Tokenizer& tokenizer) {
  const Vocabulary& v = tokenizer.vocabulary();
  const bool joins = v.remove_extra_spaces || !v.strip_left.empty() || !v.strip_right.empty();
  TokenBytes out;
  for (int byte = 0; byte < 256; ++byte)
    out.counted[static_cast<size_t>(byte)] = knows(tokenizer, static_cast<uint8_t>(byte));
  // Only bytes of byte-level texts stand for themselves.
  const bool each = v.kind == VocabularyKind::kByteLevelBpe && v.unicode_form == UnicodeForm::kAsIs;
  const bool all = std::all_of(out.counted.begin(), out.counted.end(), [](bool b) { return b; });
  if (joins || !(each || all)) return out;
  size_t most = 0;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    most = std::max(most, tokenizer.bytes(id).size());
    // The mark of a space may also stand in the text as itself.
    if (v.kind != VocabularyKind::kByteLevelBpe)
      most = std::max(most, v.tokens[static_cast<size_t>(id)].size());
  }
  const int64_t shrinks = v.unicode_form == UnicodeForm::kAsIs ? 1 : kNormalFormShrinks;
  out.most = shrinks * static_cast<int64_t>(most);
  return out;
}

}  // namespace pf
