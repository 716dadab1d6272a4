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

// Every text has tokens, whatever its bytes are.
bool knows_every_byte(const Tokenizer& tokenizer) {
  const bool letters = tokenizer.vocabulary().kind == VocabularyKind::kByteLevelBpe;
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    char code[16];
    std::snprintf(code, sizeof(code), "<0x%02X>", static_cast<unsigned>(byte));
    append_utf8(letter_of_byte(static_cast<uint8_t>(byte)), &token);
    if (!tokenizer.find(letters ? token : code)) return false;
  }
  return true;
}

}  // namespace

int64_t prompt_bytes(const wire::GenerateRequest& r) {
  return r.has_messages() ? content_bytes(r.messages()) : static_cast<int64_t>(r.text().size());
}

int64_t text_bytes(const wire::GenerateRequest& r) {
  return prompt_bytes(r) + static_cast<int64_t>(r.speculation().predicted_text().size());
}

int64_t text_bytes(const wire::TokenizeRequest& r) {
  return r.has_messages() ? content_bytes(r.messages()) : static_cast<int64_t>(r.text().size());
}

int64_t text_bytes(const wire::DetokenizeRequest& r) { return kIdBytes * r.ids_size(); }

int64_t most_bytes_of_a_token(const Tokenizer& tokenizer) {
  const Vocabulary& v = tokenizer.vocabulary();
  const bool joins = v.remove_extra_spaces || !v.strip_left.empty() || !v.strip_right.empty();
  if (joins || !knows_every_byte(tokenizer)) return 0;
  size_t most = 0;
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    most = std::max(most, tokenizer.bytes(id).size());
    // The mark of a space may also stand in the text as itself.
    if (v.kind != VocabularyKind::kByteLevelBpe)
      most = std::max(most, v.tokens[static_cast<size_t>(id)].size());
  }
  const int64_t shrinks = v.unicode_form == UnicodeForm::kAsIs ? 1 : kNormalFormShrinks;
  return shrinks * static_cast<int64_t>(most);
}

}  // namespace pf
