#pragma once

#include "speculation/draft_vocabulary.h"

namespace pf {

// A vocabulary of the same V tokens under other numbers; target tokens below n_missing have no
// partner: their numbers mean nothing to the target, and they are spelled with two others.
inline DraftVocabulary permuted(int32_t V, int32_t n_missing) {
  DraftVocabulary v;
  v.to_target.assign(static_cast<size_t>(V), -1);
  v.to_draft.assign(static_cast<size_t>(V), -1);
  for (int32_t t = 0; t < V; ++t) {
    v.spelling_begin.push_back(static_cast<int32_t>(v.spelling.size()));
    int32_t d = (7 * t + 3) % V;
    if (t < n_missing) {
      v.spelling.insert(v.spelling.end(), {(7 * (V - 1) + 3) % V, (7 * (V - 2) + 3) % V});
    } else {
      v.to_target[static_cast<size_t>(d)] = t;
      v.to_draft[static_cast<size_t>(t)] = d;
    }
  }
  v.spelling_begin.push_back(static_cast<int32_t>(v.spelling.size()));
  return v;
}

}  // namespace pf
