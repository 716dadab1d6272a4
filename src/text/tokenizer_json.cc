// Hugging Face's tokenizer.json: a pipeline of named steps. What is read here is what BPE models
// use; a step that would change the ids and is not known is refused, never skipped.
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "text/normalize.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary.h"

namespace pf {
namespace {

using Json = nlohmann::json;

Status unsupported(const std::string& what) {
  return Status(Code::kUnimplemented, "tokenizer.json: " + what + " is not supported");
}

Status wrong(const std::string& what) { return invalid("tokenizer.json: " + what); }

// The member, or null where there is none.
const Json& at(const Json& j, const char* key) {
  static const Json kNull;
  const auto found = j.is_object() ? j.find(key) : j.end();
  return j.is_object() && found != j.end() ? *found : kNull;
}

std::string text_at(const Json& j, const char* key) {
  const Json& t = at(j, key);
  return t.is_string() ? t.get<std::string>() : "";
}

bool flag_at(const Json& j, const char* key, bool otherwise) {
  const Json& b = at(j, key);
  return b.is_boolean() ? b.get<bool>() : otherwise;
}

bool is_id(const Json& j) {
  return j.is_number_integer() && j.get<int64_t>() >= 0 && j.get<int64_t>() < (int64_t{1} << 24);
}

// Nesting is checked first, so that what parses the text needs no deep stack.
bool nested_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    in_string = c == '"';
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > 64) return true;
  }
  return false;
}

Result<Json> parse(std::string_view text, const std::string& file) {
  if (nested_too_deep(text)) return invalid(file + ": nested deeper than 64 levels");
  Json j = Json::parse(text, nullptr, false);
  if (!j.is_object()) return invalid(file + ": not a JSON object (cut or foreign file?)");
  return j;
}

Status place_token(const std::string& text, int64_t id, TokenType type, Vocabulary* v,
                   std::vector<bool>* known) {
  const auto i = static_cast<size_t>(id);
  if (i >= v->tokens.size()) {
    v->tokens.resize(i + 1);
    v->types.resize(i + 1, TokenType::kNormal);
    known->resize(i + 1);
  }
  if ((*known)[i] && v->tokens[i] != text)
    return wrong("id " + std::to_string(i) + " is both " + excerpt(v->tokens[i]) + " and " +
                 excerpt(text));
  v->tokens[i] = text;
  v->types[i] = type;
  (*known)[i] = true;
  return {};
}

Status read_tokens(const Json& root, Vocabulary* v) {
  const Json& model = at(root, "model");
  const Json& vocab = at(model, "vocab");
  if (!vocab.is_object()) return wrong("model.vocab is not an object");
  const bool byte_fallback = flag_at(model, "byte_fallback", false);
  const size_t n_most = vocab.size() + at(root, "added_tokens").size();
  const auto beyond = [&](const Json& id) {
    return wrong("id " + id.dump() + " leaves ids without a token: there are at most " +
                 std::to_string(n_most) + " tokens");
  };
  std::vector<bool> known;
  for (const auto& [text, id] : vocab.items()) {
    if (!is_id(id)) return wrong("model.vocab: token " + excerpt(text) + " has no valid id");
    if (id.get<size_t>() >= n_most) return beyond(id);
    const bool byte = byte_fallback && text.size() == 6 && text.starts_with("<0x");
    const Status s = place_token(text, id.get<int64_t>(),
                                 byte ? TokenType::kByte : TokenType::kNormal, v, &known);
    if (!s.ok()) return s;
  }
  for (const Json& added : at(root, "added_tokens")) {
    const std::string text = text_at(added, "content");
    const Json& id = at(added, "id");
    if (!is_id(id) || text.empty()) return wrong("added_tokens: an entry lacks id or content");
    if (id.get<size_t>() >= n_most) return beyond(id);
    const bool special = flag_at(added, "special", false);
    const Status s =
        place_token(text, id.get<int64_t>(),
                    special ? TokenType::kControl : TokenType::kUserDefined, v, &known);
    if (!s.ok()) return s;
    if (flag_at(added, "lstrip", false)) v->strip_left.push_back(id.get<int32_t>());
    if (flag_at(added, "rstrip", false)) v->strip_right.push_back(id.get<int32_t>());
  }
  for (size_t i = 0; i < known.size(); ++i)
    if (!known[i]) return wrong("no token has the id " + std::to_string(i));
  return {};
}

Status read_merges(const Json& model, Vocabulary* v) {
  const Json& merges = at(model, "merges");
  if (!merges.is_array()) return wrong("model.merges is not a list");
  v->merges.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const Json& m = merges[i];
    if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
      v->merges.emplace_back(m[0].get<std::string>(), m[1].get<std::string>());
      continue;
    }
    const std::string text = m.is_string() ? m.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos)
      return wrong("merge " + std::to_string(i) + " is not a pair of tokens");
    v->merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return {};
}

std::string escaped(const std::string& literal) {
  std::string out;
  for (char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Status read_split(const Json& step, Vocabulary* v) {
  const Json& pattern = at(step, "pattern");
  const std::string behavior = text_at(step, "behavior");
  const bool keeps_matches =
      behavior == "Isolated" || (behavior == "Removed" && flag_at(step, "invert", false));
  if (!keeps_matches) return unsupported("a Split with behavior " + excerpt(behavior));
  if (at(pattern, "Regex").is_string())
    v->pre_patterns.push_back(text_at(pattern, "Regex"));
  else
    v->pre_patterns.push_back(escaped(text_at(pattern, "String")));
  return {};
}

Status read_metaspace(const Json& step, Vocabulary* v) {
  v->kind = VocabularyKind::kSentencePieceBpe;
  const std::string mark = text_at(step, "replacement"), scheme = text_at(step, "prepend_scheme");
  if (mark != kSpaceMark) return unsupported("a Metaspace with replacement " + excerpt(mark));
  v->add_space_prefix =
      scheme.empty() ? flag_at(step, "add_prefix_space", true) : scheme != "never";
  v->prefix_after_special = scheme != "first";
  if (flag_at(step, "split", true))
    v->pre_patterns.push_back("\\x{2581}[^\\x{2581}]*|[^\\x{2581}]+");
  return {};
}

Status read_pre_tokenizer(const Json& step, bool* byte_level, Vocabulary* v) {
  if (step.is_null()) return {};
  const std::string type = text_at(step, "type");
  if (type == "Sequence") {
    for (const Json& inner : at(step, "pretokenizers"))
      if (Status s = read_pre_tokenizer(inner, byte_level, v); !s.ok()) return s;
    return {};
  }
  if (type == "Split") return read_split(step, v);
  if (type == "Metaspace") return read_metaspace(step, v);
  if (type == "Digits") {
    v->pre_patterns.emplace_back(flag_at(step, "individual_digits", false) ? R"(\p{N})"
                                                                           : R"(\p{N}+)");
    return {};
  }
  if (type == "ByteLevel") {
    *byte_level = true;
    v->add_space_prefix = flag_at(step, "add_prefix_space", true);
    if (flag_at(step, "use_regex", true)) v->pre_patterns.emplace_back(kGpt2Pattern);
    return {};
  }
  return unsupported("the pre_tokenizer " + excerpt(type));
}

Status read_normalizer(const Json& step, Vocabulary* v) {
  if (step.is_null()) return {};
  const std::string type = text_at(step, "type");
  if (type == "Sequence") {
    for (const Json& inner : at(step, "normalizers"))
      if (Status s = read_normalizer(inner, v); !s.ok()) return s;
    return {};
  }
  if (type == "NFC" || type == "NFKC") {
    v->unicode_form = type == "NFC" ? UnicodeForm::kNfc : UnicodeForm::kNfkc;
    return {};
  }
  if (type == "Prepend" && text_at(step, "prepend") == kSpaceMark) {
    v->add_space_prefix = true;
    return {};
  }
  if (type == "Replace" && text_at(at(step, "pattern"), "String") == " " &&
      text_at(step, "content") == kSpaceMark) {
    v->kind = VocabularyKind::kSentencePieceBpe;
    return {};
  }
  return unsupported("the normalizer " + excerpt(type));
}

class TokenIds {
 public:
  explicit TokenIds(const Vocabulary& v) {
    for (size_t i = 0; i < v.tokens.size(); ++i)
      ids_.try_emplace(v.tokens[i], static_cast<int32_t>(i));
  }
  std::optional<int32_t> of(const std::string& text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::unordered_map<std::string_view, int32_t> ids_;
};

// TemplateProcessing says which special tokens stand before and after a text.
void read_post_processor(const Json& step, const TokenIds& ids, Vocabulary* v) {
  for (const Json& inner : at(step, "processors")) read_post_processor(inner, ids, v);
  if (text_at(step, "type") != "TemplateProcessing") return;
  bool after_text = false;
  for (const Json& part : at(step, "single")) {
    if (part.is_object() && part.contains("Sequence")) after_text = true;
    const auto id = ids.of(text_at(at(part, "SpecialToken"), "id"));
    if (!id) continue;
    (after_text ? v->eos : v->bos) = id;
    (after_text ? v->add_eos : v->add_bos) = true;
  }
}

std::string token_text(const Json& config, const char* key) {
  const Json& t = at(config, key);
  return t.is_string() ? t.get<std::string>() : text_at(t, "content");
}

Status read_config(std::string_view text, const TokenIds& ids, Vocabulary* v) {
  Result<Json> config = parse(text, "tokenizer_config.json");
  if (!config.ok()) return config.status();
  const std::pair<const char*, std::optional<int32_t>*> named[] = {{"bos_token", &v->bos},
                                                                   {"eos_token", &v->eos},
                                                                   {"unk_token", &v->unk},
                                                                   {"pad_token", &v->pad}};
  for (const auto& [key, id] : named)
    if (const auto found = ids.of(token_text(*config, key))) *id = found;
  v->add_bos = flag_at(*config, "add_bos_token", v->add_bos) && v->bos;
  v->add_eos = flag_at(*config, "add_eos_token", v->add_eos) && v->eos;
  const Json& chat = at(*config, "chat_template");
  if (chat.is_string()) v->chat_template = chat.get<std::string>();
  if (chat.is_array())
    for (const Json& named_template : chat)
      if (text_at(named_template, "name") == "default")
        v->chat_template = text_at(named_template, "template");
  return {};
}

}  // namespace

Result<Vocabulary> read_tokenizer_json(std::string_view json, std::string_view config_json) {
  Result<Json> root = parse(json, "tokenizer.json");
  if (!root.ok()) return root.status();
  const Json& model = at(*root, "model");
  const std::string type = text_at(model, "type");
  if (type != "BPE" && !(type.empty() && at(model, "merges").is_array()))
    return unsupported("the model type " + excerpt(type));
  Vocabulary v;
  bool byte_level = false;
  if (Status s = read_tokens(*root, &v); !s.ok()) return s;
  if (Status s = read_merges(model, &v); !s.ok()) return s;
  if (Status s = read_normalizer(at(*root, "normalizer"), &v); !s.ok()) return s;
  if (Status s = read_pre_tokenizer(at(*root, "pre_tokenizer"), &byte_level, &v); !s.ok()) return s;
  if (byte_level == (v.kind == VocabularyKind::kSentencePieceBpe))
    return unsupported("a BPE model that is neither ByteLevel nor SentencePiece");
  // No pattern means no cutting here, while an empty list means the patterns that `pre` names.
  if (byte_level && v.pre_patterns.empty()) v.pre_patterns.emplace_back("(?s).+");
  v.ignore_merges = flag_at(model, "ignore_merges", false);
  const TokenIds ids(v);
  v.unk = ids.of(text_at(model, "unk_token"));
  if (v.unk && v.types[*v.unk] != TokenType::kNormal) v.types[*v.unk] = TokenType::kUnknown;
  read_post_processor(at(*root, "post_processor"), ids, &v);
  if (!config_json.empty())
    if (Status s = read_config(config_json, ids, &v); !s.ok()) return s;
  if (v.kind == VocabularyKind::kSentencePieceBpe && v.merges.empty())
    return wrong("model.merges is empty");
  if (Status s = check_vocabulary(&v); !s.ok()) return s.within("tokenizer.json");
  return v;
}

}  // namespace pf
