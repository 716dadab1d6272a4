#include "text/vocabulary.h"

#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "text/utf8.h"

namespace pf {
namespace {

constexpr size_t kMaxTokens = size_t{1} << 24;
constexpr size_t kMaxMarkerBytes = 256;  // markers are looked for at every byte of a text

using Ids = std::unordered_map<std::string_view, int32_t>;

std::string number(size_t n) { return std::to_string(n); }

Status check_lists(const Vocabulary& v) {
  const size_t n = v.tokens.size();
  if (n == 0) return invalid("vocabulary: it has no tokens");
  if (n > kMaxTokens) return invalid("vocabulary: " + number(n) + " tokens are too many");
  if (v.types.size() != n)
    return invalid("vocabulary: " + number(n) + " tokens but " + number(v.types.size()) + " types");
  if (!v.scores.empty() && v.scores.size() != n)
    return invalid("vocabulary: " + number(n) + " tokens but " + number(v.scores.size()) +
                   " scores");
  if (v.kind == VocabularyKind::kSentencePieceBpe && v.merges.empty() && v.scores.empty())
    return invalid("vocabulary: a SentencePiece vocabulary needs scores or merges");
  for (size_t i = 0; i < v.scores.size(); ++i)
    if (!std::isfinite(v.scores[i]))
      return invalid("vocabulary: the score of token " + number(i) + " is not a number");
  for (size_t i = 0; i < n; ++i) {
    const int type = static_cast<int>(v.types[i]);
    if (type < 1 || type > 6)
      return invalid("vocabulary: token " + number(i) + " has the unknown type " +
                     std::to_string(type));
  }
  return {};
}

Status check_tokens(const Vocabulary& v, Ids* ids) {
  ids->reserve(v.tokens.size());
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.types[i] == TokenType::kUnused) continue;
    if (v.tokens[i].empty() && v.types[i] != TokenType::kNormal)
      return invalid("vocabulary: special token " + number(i) + " is empty");
    const bool marker = v.types[i] == TokenType::kControl || v.types[i] == TokenType::kUserDefined;
    if (marker && v.tokens[i].size() > kMaxMarkerBytes)
      return invalid("vocabulary: special token " + number(i) + " is longer than " +
                     number(kMaxMarkerBytes) + " bytes");
    const auto [known, fresh] = ids->emplace(v.tokens[i], static_cast<int32_t>(i));
    if (!fresh)
      return invalid("vocabulary: tokens " + std::to_string(known->second) + " and " + number(i) +
                     " are both " + excerpt(v.tokens[i]));
  }
  for (size_t i = 0; i < v.tokens.size(); ++i)
    if (v.types[i] == TokenType::kUnused) ids->emplace(v.tokens[i], static_cast<int32_t>(i));
  return {};
}

Status check_merges(const Vocabulary& v, const Ids& ids) {
  std::unordered_set<uint64_t> seen;
  seen.reserve(v.merges.size());
  std::string joined;
  for (size_t i = 0; i < v.merges.size(); ++i) {
    const auto& [left, right] = v.merges[i];
    const auto refuse = [&](const std::string& why) {
      return invalid("vocabulary: merge " + number(i) + " (" + excerpt(left) + " + " +
                     excerpt(right) + "): " + why);
    };
    if (left.empty() || right.empty()) return refuse("an empty part would merge for ever");
    const auto l = ids.find(left), r = ids.find(right);
    if (l == ids.end()) return refuse("the left part is not a token");
    if (r == ids.end()) return refuse("the right part is not a token");
    joined = left;
    joined += right;
    if (!ids.contains(joined)) return refuse("the result is not a token");
    const uint64_t pair = static_cast<uint64_t>(l->second) << 32 | static_cast<uint32_t>(r->second);
    if (!seen.insert(pair).second) return refuse("it stands there twice");
  }
  return {};
}

Status check_ids(const Vocabulary& v) {
  const auto n = static_cast<int32_t>(v.tokens.size());
  const auto outside = [&](int32_t id) { return id < 0 || id >= n; };
  const std::pair<const char*, std::optional<int32_t>> named[] = {
      {"bos", v.bos}, {"eos", v.eos}, {"eot", v.eot}, {"unk", v.unk}, {"pad", v.pad}};
  for (const auto& [name, id] : named)
    if (id && outside(*id))
      return invalid(std::string("vocabulary: the ") + name + " token is " + std::to_string(*id) +
                     ", outside [0, " + std::to_string(n) + ")");
  for (const auto* list : {&v.strip_left, &v.strip_right})
    for (int32_t id : *list)
      if (outside(id))
        return invalid("vocabulary: stripping token " + std::to_string(id) + " is outside [0, " +
                       std::to_string(n) + ")");
  if (v.add_bos && !v.bos) return invalid("vocabulary: add_bos is set but there is no bos token");
  if (v.add_eos && !v.eos) return invalid("vocabulary: add_eos is set but there is no eos token");
  return {};
}

}  // namespace

Status check_vocabulary(Vocabulary* vocabulary) {
  Vocabulary& v = *vocabulary;
  if (v.types.empty()) v.types.assign(v.tokens.size(), TokenType::kNormal);
  if (Status s = check_lists(v); !s.ok()) return s;
  if (Status s = check_ids(v); !s.ok()) return s;
  Ids ids;
  if (Status s = check_tokens(v, &ids); !s.ok()) return s;
  return check_merges(v, ids);
}

std::string excerpt(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string out = "'";
  const std::string valid = to_valid_utf8(text.substr(0, kLongest));
  for (char c : valid)
    if (static_cast<uint8_t>(c) >= 0x20 && c != 0x7F) out += c;
  out += text.size() > kLongest ? "...'" : "'";
  return out;
}

}  // namespace pf
