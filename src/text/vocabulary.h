#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace pf {

// What a token is for; the numbers are those of GGUF and of SentencePiece.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // a marker: parsed in text only on request, hidden by skip_special
  kUserDefined = 4,  // always taken whole in text, and shown
  kUnused = 5,
  kByte = 6,  // "<0x0A>" stands for one byte
};

enum class VocabularyKind : uint8_t {
  kByteLevelBpe,      // GGUF "gpt2": tokens are written in the GPT-2 byte alphabet
  kSentencePieceBpe,  // GGUF "llama": tokens are text with U+2581 for a space
};

enum class UnicodeForm : uint8_t { kAsIs, kNfc, kNfkc };

// Everything a tokenizer needs, as some file said it: plain data, filled by a reader below or by
// the caller from GGUF metadata, believed only after check_vocabulary.
struct Vocabulary {
  VocabularyKind kind = VocabularyKind::kByteLevelBpe;
  std::vector<std::string> tokens;  // [V] as stored in the file
  std::vector<TokenType> types;     // [V]; empty = all normal
  std::vector<float> scores;        // [V] or empty; they rule merging when there are no merges
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank

  // How text is cut before merging: regular expressions, each cutting the pieces of the one before
  // (matches and what lies between them are pieces). Empty: those that the name `pre` stands for.
  std::string pre;  // "smollm", "gpt-2", "llama-bpe", "qwen2", "default", "deepseek-coder", ...
  std::vector<std::string> pre_patterns;
  bool ignore_merges = false;  // a piece that is a token is taken whole

  std::optional<int32_t> bos, eos, eot, unk, pad;
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = false;
  bool prefix_after_special =
      true;  // each text after a special token gets a prefix, not only the first
  bool remove_extra_spaces = false;
  UnicodeForm unicode_form = UnicodeForm::kAsIs;
  std::vector<int32_t> strip_left, strip_right;  // ids that swallow white space before, after them
  std::string chat_template;                     // Jinja text, empty when the model has none
};

// Refuses what cannot be a vocabulary: lists of different lengths, duplicate and missing tokens,
// merges of unknown or of empty tokens (an empty part would merge for ever), duplicate merges,
// special ids out of range, scores that are no numbers. Fills empty `types`. A token of type
// kUnused may repeat another (padded vocabularies); a merge may name a token of any type.
Status check_vocabulary(Vocabulary* vocabulary);

// Hugging Face's tokenizer.json (BPE models) and, when there is one, the text of
// tokenizer_config.json ("" = none). INVALID_ARGUMENT or UNIMPLEMENTED says what and where.
Result<Vocabulary> read_tokenizer_json(std::string_view json, std::string_view config_json = "");

// SentencePiece's tokenizer.model (BPE models).
Result<Vocabulary> read_sentencepiece(std::span<const std::byte> file);

// An excerpt of file content that is fit for a one-line message: control bytes and the rest beyond
// 60 bytes are left out.
std::string excerpt(std::string_view text);

}  // namespace pf
