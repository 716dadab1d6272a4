#include "speculation/drafter_choice.h"

#include <algorithm>

namespace pf {

bool DrafterChoice::allowed(const Sequence& sequence, int32_t drafter) const {
  const std::vector<std::string>& wanted = sequence.request->speculation.drafters;
  const Drafter& d = *drafters_[static_cast<size_t>(drafter)];
  if (names_ && std::find(names_->begin(), names_->end(), d.name()) == names_->end()) return false;
  return wanted.empty() || d.asked_for(sequence) ||
         std::find(wanted.begin(), wanted.end(), d.name()) != wanted.end();
}

int32_t DrafterChoice::choose(const Sequence& sequence) {
  for (int32_t i = 0; i < size(); ++i) {
    Drafter& d = *drafters_[static_cast<size_t>(i)];
    if (allowed(sequence, i) && sequence.n_tokens() < d.max_context() &&
        d.match_length(sequence) > 0)
      return i;
  }
  return kNobody;
}

}  // namespace pf
