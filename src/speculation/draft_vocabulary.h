#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pf {

// What the tokens of a draft model are to its target, where the two do not share a vocabulary.
// Plain data: text/vocabulary_map.h works it out. A draft token without a partner is never
// proposed: its q is 0 and what is left of q is renormalised, so the target's law holds whatever
// the map says.
struct DraftVocabulary {
  std::vector<int32_t> to_target;  // [V of the draft]; -1: no partner
  std::vector<int32_t> to_draft;   // [V of the target]; -1: no partner
  // Fed for a target token without a partner: spelling[spelling_begin[t], spelling_begin[t + 1]).
  std::vector<int32_t> spelling_begin;  // [V of the target + 1]
  std::vector<int32_t> spelling;

  bool empty() const { return to_target.empty(); }

  // Draft tokens for a committed token of the target; may be none.
  std::span<const int32_t> feed(int32_t token) const {
    auto t = static_cast<size_t>(token);
    if (to_draft[t] >= 0) return std::span(to_draft).subspan(t, 1);
    auto begin = static_cast<size_t>(spelling_begin[t]);
    return std::span(spelling).subspan(begin, static_cast<size_t>(spelling_begin[t + 1]) - begin);
  }

  // Fits the widths of both models' logits, which may exceed what their tokenizers name, and leaves
  // one draft token to say each token of the target: the one that it is fed as.
  // Requires: no id beyond n_draft.
  void fit(int64_t n_draft, int64_t n_target) {
    to_target.resize(static_cast<size_t>(n_draft), -1);
    to_draft.resize(static_cast<size_t>(n_target), -1);
    spelling_begin.resize(static_cast<size_t>(n_target) + 1,
                          spelling_begin.empty() ? 0 : spelling_begin.back());
    for (size_t d = 0; d < to_target.size(); ++d) {
      int32_t& t = to_target[d];
      bool paired =
          t >= 0 && t < n_target && to_draft[static_cast<size_t>(t)] == static_cast<int32_t>(d);
      if (!paired) t = -1;
    }
  }
};

}  // namespace pf
