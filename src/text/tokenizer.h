#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/bpe_merge.h"
#include "text/pre_tokenizer.h"
#include "text/token_trie.h"
#include "text/vocabulary.h"

namespace pf {

struct EncodeOptions {
  bool add_special = true;     // BOS and EOS where the vocabulary asks for them
  bool parse_special = false;  // "<|im_end|>" in the text becomes the token; else it stays text
  EncodeWork* work = nullptr;  // counts are added to it
};

// Text to token ids and back, for one vocabulary. Immutable: any number of threads may use it.
class Tokenizer {
 public:
  // Refuses what check_vocabulary refuses, and an unknown pre-tokenizer.
  static Result<Tokenizer> create(Vocabulary vocabulary);

  Tokenizer(Tokenizer&&) = default;
  Tokenizer& operator=(Tokenizer&&) = default;

  // Any bytes: what is not UTF-8 counts as U+FFFD. A byte-level vocabulary without a token for some
  // byte drops that byte, as Hugging Face does.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The text of a whole answer: valid UTF-8, invalid bytes as U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // The bytes a token stands for; a special token's are its text. Empty for an id that is not in
  // the vocabulary (logits may be wider).
  std::string_view bytes(int32_t id) const;

  // Control and unknown tokens: hidden by skip_special. False outside of the vocabulary.
  bool is_special(int32_t id) const;

  // The token that is stored as this text.
  std::optional<int32_t> find(std::string_view token_text) const;
  // The control or user-defined token of this text, which a chat template may use as a marker.
  std::optional<int32_t> find_marker(std::string_view text) const;

  int32_t size() const { return static_cast<int32_t>(vocabulary_.tokens.size()); }
  std::optional<int32_t> bos() const { return vocabulary_.bos; }
  std::optional<int32_t> eos() const { return vocabulary_.eos; }
  std::optional<int32_t> eot() const { return vocabulary_.eot; }
  bool strips_right(int32_t id) const;

  // As given to create, less its merges.
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Output;  // ids so far and the counts of one call

  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  void index_tokens();
  void index_merges();
  bool merges_by_rank() const { return !pairs_.empty(); }
  std::string token_bytes(int32_t id) const;

  void encode_text(std::string_view text, bool first, Output* out) const;
  void encode_byte_piece(std::string_view piece, Output* out) const;
  void encode_text_piece(std::string_view piece, Output* out) const;
  void emit_text_symbol(std::string_view text, int32_t id,
                        const std::unordered_map<int32_t, std::pair<int32_t, int32_t>>& parts,
                        Output* out) const;
  void emit_unknown(std::string_view text, Output* out) const;

  Vocabulary vocabulary_;
  std::optional<PreTokenizer> pre_;
  std::vector<char> arena_;                                 // bytes of all tokens
  std::vector<uint32_t> begins_;                            // [V + 1] into the arena
  std::unordered_map<std::string_view, int32_t> by_text_;   // stored text -> id
  std::unordered_map<std::string_view, int32_t> by_bytes_;  // only with ignore_merges
  std::unordered_map<uint64_t, BpeMerge> pairs_;            // left id << 32 | right id
  std::array<int32_t, 256> byte_ids_{};                     // -1: no token for this byte
  size_t longest_token_ = 0;
  TokenTrie markers_;  // control and user-defined tokens
};

}  // namespace pf
