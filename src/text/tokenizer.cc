#include "text/tokenizer.h"

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/detokenizer.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace pf {
namespace {

constexpr uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// The byte of "<0x0A>", -1 for anything else.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

struct Tokenizer::Output {
  std::vector<int32_t> ids;
  EncodeWork work;
  bool unknown_before = false;  // the last id is an unknown token for the text just before
};

Result<Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
  if (Status s = check_vocabulary(&vocabulary); !s.ok()) return s;
  std::vector<std::string> patterns = vocabulary.pre_patterns;
  if (patterns.empty() && vocabulary.kind == VocabularyKind::kByteLevelBpe) {
    Result<std::vector<std::string>> named = PreTokenizer::patterns_of(vocabulary.pre);
    if (!named.ok()) return named.status().within("vocabulary");
    patterns = named.take();
    if (patterns == *PreTokenizer::patterns_of("llama-bpe")) vocabulary.ignore_merges = true;
  }
  Result<PreTokenizer> pre = PreTokenizer::create(patterns);
  if (!pre.ok()) return pre.status().within("vocabulary");
  size_t n_bytes = 0;
  for (const std::string& t : vocabulary.tokens) n_bytes += t.size();
  if (n_bytes > UINT32_MAX) return invalid("vocabulary: its tokens take more than 4 GiB");

  Tokenizer made(std::move(vocabulary));
  made.pre_ = pre.take();
  made.index_tokens();
  made.index_merges();
  return made;
}

void Tokenizer::index_tokens() {
  const Vocabulary& v = vocabulary_;
  for (int32_t id = 0; id < size(); ++id) {
    begins_.push_back(static_cast<uint32_t>(arena_.size()));
    const std::string bytes = token_bytes(id);
    arena_.insert(arena_.end(), bytes.begin(), bytes.end());
    longest_token_ = std::max(longest_token_, v.tokens[id].size());
  }
  begins_.push_back(static_cast<uint32_t>(arena_.size()));
  by_text_.reserve(v.tokens.size());
  for (const bool unused :
       {false, true})  // a used token goes before an unused one of the same text
    for (int32_t id = 0; id < size(); ++id)
      if ((v.types[id] == TokenType::kUnused) == unused) by_text_.emplace(v.tokens[id], id);
  for (int32_t id = 0; id < size(); ++id) {
    const TokenType type = v.types[id];
    if (type == TokenType::kControl || type == TokenType::kUserDefined)
      markers_.add(bytes(id), id);
    else if (v.ignore_merges && type == TokenType::kNormal && !bytes(id).empty())
      by_bytes_.emplace(bytes(id), id);
  }
  byte_ids_.fill(-1);
  for (int b = 0; b < 256; ++b) {
    if (v.kind != VocabularyKind::kByteLevelBpe) break;
    std::string letter;
    append_utf8(letter_of_byte(static_cast<uint8_t>(b)), &letter);
    const auto id = find(letter);
    if (id && v.types[*id] == TokenType::kNormal) byte_ids_[b] = *id;
  }
  for (int32_t id = 0; id < size(); ++id)
    if (const int b = byte_of_token(v.tokens[id]); v.types[id] == TokenType::kByte && b >= 0)
      byte_ids_[b] = id;
}

void Tokenizer::index_merges() {
  pairs_.reserve(vocabulary_.merges.size());
  double rank = 0;
  for (const auto& [left, right] : vocabulary_.merges)
    pairs_.emplace(pair_key(*find(left), *find(right)), BpeMerge{rank++, *find(left + right)});
  vocabulary_.merges = {};
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const std::string& text = vocabulary_.tokens[id];
  const TokenType type = vocabulary_.types[id];
  if (type == TokenType::kControl || type == TokenType::kUnknown) return text;
  if (type == TokenType::kByte)
    if (const int b = byte_of_token(text); b >= 0) return std::string(1, static_cast<char>(b));
  if (vocabulary_.kind == VocabularyKind::kSentencePieceBpe) return without_space_marks(text);
  return type == TokenType::kUserDefined ? text : bytes_of_letters(text);
}

std::vector<int32_t> Tokenizer::encode(std::string_view given, const EncodeOptions& options) const {
  const std::string valid = to_valid_utf8(given);
  const Vocabulary& v = vocabulary_;
  Output out;
  if (options.add_special && v.add_bos) out.ids.push_back(*v.bos);
  const auto parsed = [&](int32_t id) {
    return options.parse_special || v.types[id] == TokenType::kUserDefined;
  };
  const std::string_view text = valid;
  bool first = true;  // the next text is the first, or follows a special token that restarts it
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (begin < end) {
      encode_text(text.substr(begin, end - begin), first, &out);
      first = false;
    }
  };
  for (size_t i = 0; i < text.size();) {
    const auto [id, length] = markers_.longest(text.substr(i), parsed);
    if (length == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    if (contains(v.strip_left, id))
      while (end > begin && is_white_space(static_cast<uint8_t>(text[end - 1])) &&
             static_cast<uint8_t>(text[end - 1]) < 0x80)
        --end;
    flush(end);
    out.ids.push_back(id);
    out.unknown_before = false;
    first = v.prefix_after_special && v.types[id] != TokenType::kUserDefined;
    i += length;
    if (strips_right(id)) i = text.size() - pf::strip_left(text.substr(i)).size();
    begin = i;
  }
  flush(text.size());
  if (options.add_special && v.add_eos) out.ids.push_back(*v.eos);
  if (options.work) {
    options.work->regex_calls += out.work.regex_calls;
    options.work->regex_limits += out.work.regex_limits;
    options.work->merge_pops += out.work.merge_pops;
  }
  return std::move(out.ids);
}

void Tokenizer::encode_text(std::string_view text, bool first, Output* out) const {
  const Vocabulary& v = vocabulary_;
  std::string changed;
  if (v.unicode_form != UnicodeForm::kAsIs) text = changed = normalized(text, v.unicode_form);
  const bool prefix = v.add_space_prefix && first;
  if (v.kind == VocabularyKind::kByteLevelBpe) {
    if (prefix && !text.starts_with(' ')) text = changed = std::string(" ").append(text);
    return pre_->split(text, &out->work,
                       [&](std::string_view piece) { encode_byte_piece(piece, out); });
  }
  changed = with_space_marks(text, v.remove_extra_spaces);
  if (prefix && !changed.empty()) changed.insert(0, kSpaceMark);
  pre_->split(changed, &out->work, [&](std::string_view piece) { encode_text_piece(piece, out); });
}

void Tokenizer::encode_byte_piece(std::string_view piece, Output* out) const {
  if (vocabulary_.ignore_merges)
    if (const auto whole = by_bytes_.find(piece); whole != by_bytes_.end())
      return out->ids.push_back(whole->second);
  BpeMerger merger;
  for (size_t i = 0; i < piece.size(); ++i)
    if (const int32_t id = byte_ids_[static_cast<uint8_t>(piece[i])]; id >= 0)
      merger.add(static_cast<uint32_t>(i), 1, id);
  out->work.merge_pops += merger.merge(
      [&](const BpeSymbol& l, const BpeSymbol& r) -> std::optional<BpeMerge> {
        const auto m = pairs_.find(pair_key(l.id, r.id));
        return m == pairs_.end() ? std::nullopt : std::optional(m->second);
      },
      [](const BpeSymbol&, const BpeSymbol&, int32_t) {});
  for (const BpeSymbol& s : merger.symbols)
    if (s.length > 0) out->ids.push_back(s.id);
}

// Characters first; pairs by rank where the file lists merges, else the joined text by score.
void Tokenizer::encode_text_piece(std::string_view piece, Output* out) const {
  BpeMerger merger;
  for (size_t i = 0; i < piece.size();) {
    const size_t n = first_code_point(piece.substr(i)).length;
    merger.add(static_cast<uint32_t>(i), static_cast<uint32_t>(n),
               find(piece.substr(i, n)).value_or(-1));
    i += n;
  }
  const auto& v = vocabulary_;
  // An unused token may only be passed through; its parts are what is given out.
  std::unordered_map<int32_t, std::pair<int32_t, int32_t>> parts;
  out->work.merge_pops += merger.merge(
      [&](const BpeSymbol& l, const BpeSymbol& r) -> std::optional<BpeMerge> {
        if (merges_by_rank()) {
          const auto m = pairs_.find(pair_key(l.id, r.id));
          return m == pairs_.end() ? std::nullopt : std::optional(m->second);
        }
        if (l.length + r.length > longest_token_) return std::nullopt;
        const auto m = by_text_.find(piece.substr(l.begin, l.length + r.length));
        if (m == by_text_.end()) return std::nullopt;
        const TokenType type = v.types[m->second];
        if (type != TokenType::kNormal && type != TokenType::kUserDefined &&
            type != TokenType::kUnused)
          return std::nullopt;
        return BpeMerge{-static_cast<double>(v.scores[m->second]), m->second};
      },
      [&](const BpeSymbol& l, const BpeSymbol& r, int32_t id) {
        if (v.types[id] == TokenType::kUnused) parts.try_emplace(id, l.id, r.id);
      });
  for (const BpeSymbol& s : merger.symbols)
    if (s.length > 0) emit_text_symbol(piece.substr(s.begin, s.length), s.id, parts, out);
}

void Tokenizer::emit_text_symbol(
    std::string_view text, int32_t id,
    const std::unordered_map<int32_t, std::pair<int32_t, int32_t>>& parts, Output* out) const {
  std::vector<std::pair<std::string_view, int32_t>> todo = {{text, id}};
  while (!todo.empty()) {
    const auto [t, i] = todo.back();
    todo.pop_back();
    const TokenType type = i < 0 ? TokenType::kUnknown : vocabulary_.types[i];
    if (type == TokenType::kNormal || type == TokenType::kUserDefined) {
      out->ids.push_back(i);
      out->unknown_before = false;
      continue;
    }
    const auto p = type == TokenType::kUnused ? parts.find(i) : parts.end();
    // A part that is no token has no length of its own to cut by; then the bytes are given out.
    if (p == parts.end() || p->second.first < 0 || p->second.second < 0) {
      emit_unknown(t, out);
      continue;
    }
    const size_t n = vocabulary_.tokens[p->second.first].size();
    todo.emplace_back(t.substr(n), p->second.second);
    todo.emplace_back(t.substr(0, n), p->second.first);
  }
}

void Tokenizer::emit_unknown(std::string_view text, Output* out) const {
  const bool all = std::all_of(text.begin(), text.end(),
                               [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; });
  if (all) {
    for (char c : text) out->ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    out->unknown_before = false;
  } else if (vocabulary_.unk && !out->unknown_before) {
    out->ids.push_back(*vocabulary_.unk);
    out->unknown_before = true;
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, {.skip_special = skip_special, .at_text_start = true});
  std::string text;
  for (int32_t id : ids) detokenizer.append(id, &text);
  return text + detokenizer.flush();
}

std::string_view Tokenizer::bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return {arena_.data() + begins_[id], begins_[id + 1] - begins_[id]};
}

bool Tokenizer::is_special(int32_t id) const {
  if (id < 0 || id >= size()) return false;
  const TokenType type = vocabulary_.types[id];
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

std::optional<int32_t> Tokenizer::find(std::string_view token_text) const {
  const auto found = by_text_.find(token_text);
  return found == by_text_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int32_t> Tokenizer::find_marker(std::string_view text) const {
  const auto any = [](int32_t) { return true; };
  const auto [id, length] = markers_.longest(text, any);
  return length > 0 && length == text.size() ? std::optional(id) : std::nullopt;
}

bool Tokenizer::strips_right(int32_t id) const { return contains(vocabulary_.strip_right, id); }

}  // namespace pf
