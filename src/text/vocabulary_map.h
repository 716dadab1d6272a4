#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace pf {

// Which token of a draft is which token of a target. Two tokens are partners when they stand for
// the same bytes and both are special or both are text.
struct VocabularyMap {
  bool identity = false;           // every id below both sizes means the same: map by doing nothing
  std::vector<int32_t> to_target;  // [V of the draft], -1: no partner
  std::vector<int32_t> to_draft;   // [V of the target], -1: no partner
  int32_t n_shared = 0;            // draft tokens with a partner
  double draft_coverage = 0;       // n_shared / V of the draft
  double target_coverage = 0;      // target tokens with a partner / V of the target
  std::vector<int32_t> first_differences;  // the first ids (at most 8) that mean different things
  // What the draft is fed for a target token without a partner: its bytes in draft tokens, the
  // longest ones first. Token t: spelling[spelling_begin[t], spelling_begin[t + 1]); empty for a
  // token that has a partner, stands for nothing, or has a byte that the draft cannot say.
  std::vector<int32_t> spelling_begin;  // [V of the target + 1]
  std::vector<int32_t> spelling;
  // Every target token that stands for text has a partner.
  bool covers_text = false;
};

// Unused tokens (the padding of a vocabulary) differ from nothing and, by their id, from no one.
VocabularyMap map_vocabularies(const Tokenizer& draft, const Tokenizer& target);

// FAILED_PRECONDITION when drafting through the map cannot pay: fewer than a quarter of the draft's
// tokens have a partner (most drafts would be cut short by a token that the target does not have),
// or fewer than 256 do unless the map is the identity.
Status check_useful(const VocabularyMap& map);

}  // namespace pf
