#include "text/vocabulary_map.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "text/token_trie.h"

namespace pf {
namespace {

bool is_unused(const Tokenizer& t, int32_t id) {
  return t.vocabulary().types[id] == TokenType::kUnused;
}

bool same_meaning(const Tokenizer& a, int32_t i, const Tokenizer& b, int32_t j) {
  return a.is_special(i) == b.is_special(j) && a.bytes(i) == b.bytes(j);
}

// Ids by their bytes; of two text tokens with the same bytes (a letter and its byte) the first.
class Finder {
 public:
  explicit Finder(const Tokenizer& tokenizer) {
    for (int32_t id = 0; id < tokenizer.size(); ++id)
      if (!is_unused(tokenizer, id))
        by_bytes_[tokenizer.is_special(id)].try_emplace(tokenizer.bytes(id), id);
  }

  int32_t partner_of(const Tokenizer& other, int32_t id) const {
    if (is_unused(other, id)) return -1;
    const auto& map = by_bytes_[other.is_special(id)];
    const auto found = map.find(other.bytes(id));
    return found == map.end() ? -1 : found->second;
  }

 private:
  std::unordered_map<std::string_view, int32_t> by_bytes_[2];  // text, special
};

std::vector<int32_t> map_one_way(const Tokenizer& from, const Tokenizer& to) {
  const Finder finder(to);
  std::vector<int32_t> map(from.size());
  for (int32_t id = 0; id < from.size(); ++id) {
    const bool same_id = id < to.size() && !is_unused(from, id) && !is_unused(to, id) &&
                         same_meaning(from, id, to, id);
    map[id] = same_id ? id : finder.partner_of(from, id);
  }
  return map;
}

int32_t n_mapped(const std::vector<int32_t>& map) {
  return static_cast<int32_t>(
      std::count_if(map.begin(), map.end(), [](int32_t id) { return id >= 0; }));
}

// Draft tokens for every target token that has no partner.
void spell(const Tokenizer& draft, const Tokenizer& target, VocabularyMap* map) {
  TokenTrie pieces;
  for (int32_t id = 0; id < draft.size(); ++id)
    if (!is_unused(draft, id) && !draft.is_special(id) && !draft.bytes(id).empty())
      pieces.add(draft.bytes(id), id);
  map->covers_text = true;
  for (int32_t id = 0; id < target.size(); ++id) {
    map->spelling_begin.push_back(static_cast<int32_t>(map->spelling.size()));
    if (map->to_draft[id] >= 0 || is_unused(target, id)) continue;
    map->covers_text &= target.is_special(id);
    std::string_view rest = target.bytes(id);
    while (!rest.empty()) {
      const auto [piece, length] = pieces.longest(rest, [](int32_t) { return true; });
      if (length == 0) break;
      map->spelling.push_back(piece);
      rest.remove_prefix(length);
    }
    if (!rest.empty()) map->spelling.resize(static_cast<size_t>(map->spelling_begin.back()));
  }
  map->spelling_begin.push_back(static_cast<int32_t>(map->spelling.size()));
}

}  // namespace

VocabularyMap map_vocabularies(const Tokenizer& draft, const Tokenizer& target) {
  constexpr size_t kMaxDifferences = 8;
  VocabularyMap map;
  map.identity = true;
  for (int32_t id = 0; id < std::min(draft.size(), target.size()); ++id) {
    if (is_unused(draft, id) || is_unused(target, id) || same_meaning(draft, id, target, id))
      continue;
    map.identity = false;
    if (map.first_differences.size() < kMaxDifferences) map.first_differences.push_back(id);
  }
  map.to_target = map_one_way(draft, target);
  map.to_draft = map_one_way(target, draft);
  map.n_shared = n_mapped(map.to_target);
  map.draft_coverage = static_cast<double>(map.n_shared) / draft.size();
  map.target_coverage = static_cast<double>(n_mapped(map.to_draft)) / target.size();
  spell(draft, target, &map);
  return map;
}

Status check_useful(const VocabularyMap& map) {
  const bool enough =
      map.n_shared > 0 && map.draft_coverage >= 0.25 && (map.identity || map.n_shared >= 256);
  if (enough) return {};
  return Status(Code::kFailedPrecondition,
                "draft vocabulary: only " + std::to_string(map.n_shared) + " of " +
                    std::to_string(map.to_target.size()) +
                    " tokens exist in the target's vocabulary; a quarter, and at least 256, are "
                    "needed: choose a draft of the target's family");
}

}  // namespace pf
