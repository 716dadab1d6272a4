#include "cli/draft_tokens.h"

#include "cli/load_text.h"
#include "text/vocabulary_map.h"

namespace pf {

Status read_draft_tokens(const Tokenizer& target, DraftOption* draft) {
  if (draft->path == "self" || !has_text(draft->path)) return {};
  Result<ModelText> text = load_text(draft->path);
  if (!text.ok()) return text.status();
  VocabularyMap map = map_vocabularies(text->tokenizer, target);
  using Tokens = DraftOption::Tokens;
  if (Status s = check_useful(map); !s.ok()) {
    draft->tokens = Tokens::kForeign;
    draft->why_foreign = s.message();
  } else if (map.identity && map.covers_text) {
    draft->tokens = Tokens::kEqual;
  } else {
    draft->tokens = Tokens::kMapped;
    draft->vocabulary = {std::move(map.to_target), std::move(map.to_draft),
                         std::move(map.spelling_begin), std::move(map.spelling)};
  }
  return {};
}

Status read_draft_tokens(const Tokenizer& target, EngineOptions* options) {
  if (options->speculation == std::vector<std::string>{"off"}) return {};
  for (DraftOption& draft : options->drafts)
    if (Status s = read_draft_tokens(target, &draft); !s.ok()) return s;
  return {};
}

}  // namespace pf
