#include "speculation/drafter_choice.h"

#include <algorithm>

namespace pf {

bool DrafterChoice::allowed(const Sequence& sequence, int32_t drafter) const {
  const std::vector<std::string>& wanted = sequence.request->speculation.drafters;
  const Drafter& d = *drafters_[static_cast<size_t>(drafter)];
  if (d.asked_for(sequence)) return true;
  auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), d.name()) != names.end();
  };
  return (!names_ || has(*names_)) && (wanted.empty() || has(wanted));
}

int32_t DrafterChoice::match(const Sequence& sequence, int32_t drafter) {
  Drafter& d = *drafters_[static_cast<size_t>(drafter)];
  if (!allowed(sequence, drafter) || sequence.n_tokens() >= d.max_context()) return 0;
  return d.match_length(sequence);
}

}  // namespace pf
