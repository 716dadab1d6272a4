#include "speculation/ngram_drafter.h"

#include <algorithm>

namespace pf {

uint64_t NgramIndex::key(std::span<const int32_t> ngram) {
  // Every step is a bijection of h for a given token, and tokens enter as t + 1 times an odd
  // constant, so that no short text can bring h to the start of another. What collides all the same
  // is told apart by comparing tokens.
  uint64_t h = 0x9e3779b97f4a7c15ull * (ngram.size() + 1);
  for (int32_t t : ngram) {
    h ^= (static_cast<uint64_t>(static_cast<uint32_t>(t)) + 1) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 30;
    h *= 0x94d049bb133111ebull;
    h ^= h >> 27;
  }
  return h;
}

void NgramIndex::update(std::span<const int32_t> tokens) {
  // An n-gram enters once the token behind it is known, so that the ending never finds itself.
  int64_t n = static_cast<int64_t>(tokens.size());
  for (int64_t end = std::max<int64_t>(n_seen_, 1); end < n; ++end)
    for (int64_t length = 1; length <= std::min<int64_t>(kMaxN, end); ++length)
      last_[key(tokens.subspan(static_cast<size_t>(end - length), static_cast<size_t>(length)))] =
          end;
  n_seen_ = std::max(n_seen_, n);
}

NgramIndex::Match NgramIndex::find(std::span<const int32_t> tokens) const {
  int64_t n = static_cast<int64_t>(tokens.size());
  for (int64_t length = std::min<int64_t>(kMaxN, n); length >= 1; --length) {
    auto ending = tokens.last(static_cast<size_t>(length));
    auto it = last_.find(key(ending));
    // A colliding entry may stand nearer to the beginning than this n-gram is long.
    if (it == last_.end() || it->second >= n || it->second < length) continue;
    auto there =
        tokens.subspan(static_cast<size_t>(it->second - length), static_cast<size_t>(length));
    if (std::equal(there.begin(), there.end(), ending.begin()))
      return {static_cast<int32_t>(length), it->second};
  }
  return {};
}

NgramIndex::Match NgramDrafter::match(const Sequence& sequence) {
  NgramIndex& index = indexes_[sequence.order];
  index.update(sequence.tokens);
  NgramIndex::Match m = index.find(sequence.tokens);
  return m.length >= min_match_ ? m : NgramIndex::Match{};
}

int32_t NgramDrafter::match_length(const Sequence& sequence) { return match(sequence).length; }

void NgramDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Sequence& s = *tasks[i].sequence;
    DraftTree& tree = trees[i];
    tree.clear();
    NgramIndex::Match m = match(s);
    if (m.length == 0) continue;
    for (int32_t d = 0, depth = tasks[i].depth(); d < depth; ++d) {
      // Behind the end of the text the copy goes on with what it has just proposed: a loop repeats.
      int64_t from = m.next + d;
      int32_t token = from < s.n_tokens() ? s.tokens[static_cast<size_t>(from)]
                                          : tree.tokens[static_cast<size_t>(from - s.n_tokens())];
      tree.add_one_hot(token, d - 1);
    }
  }
}

}  // namespace pf
