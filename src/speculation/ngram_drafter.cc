#include "speculation/ngram_drafter.h"

#include <algorithm>
#include <bit>

namespace pf {

namespace {

constexpr int kFirstBits = 7;        // log2 of a new table's entries
constexpr int64_t kTokensAhead = 8;  // entries are fetched so long before they are needed
constexpr uint64_t kFirstHash = 0x9e3779b97f4a7c15;

}  // namespace

uint64_t NgramIndex::extend(uint64_t hash, int32_t token) {
  hash ^= static_cast<uint64_t>(static_cast<uint32_t>(token)) + 1;
  hash *= 0xbf58476d1ce4e5b9ull;
  return hash ^ hash >> 32;
}

uint32_t NgramIndex::key_of(uint64_t hash, int64_t length) {
  static_assert(kMaxN == 4, "two bits of a key hold the length");
  return (static_cast<uint32_t>(hash) * 0x94d049bbu & ~3u) | static_cast<uint32_t>(length - 1);
}

size_t NgramIndex::place(std::span<const int32_t> tokens, int64_t end, int64_t length,
                         uint32_t key) const {
  const int32_t* last = tokens.data() + end;
  auto is_here = [&](int64_t next) {
    const int32_t* there = tokens.data() + next;
    int64_t i = 1;
    while (i <= length && there[-i] == last[-i]) ++i;
    return i > length;
  };
  size_t at = home(key);
  for (; entries_[at].next != 0; at = (at + 1) & (entries_.size() - 1))
    if (entries_[at].key == key && is_here(entries_[at].next)) break;
  return at;
}

void NgramIndex::make_room(int64_t n_more) {
  size_t size = std::max(entries_.size(), size_t{1} << kFirstBits);
  while (size < 2 * static_cast<size_t>(n_taken_ + n_more)) size *= 2;
  if (size == entries_.size()) return;
  std::vector<Entry> old(size);
  std::swap(entries_, old);
  shift_ = 32 - std::countr_zero(size);
  // First the taken ones to the front, without a branch: which are taken is as good as random.
  size_t n_old = 0;
  for (const Entry& e : old) {
    old[n_old] = e;
    n_old += e.next != 0;
  }
  for (size_t i = 0; i < n_old; ++i) {
    size_t at = home(old[i].key);
    while (entries_[at].next != 0) at = (at + 1) & (size - 1);
    entries_[at] = old[i];
  }
}

void NgramIndex::fetch(std::span<const int32_t> tokens, int64_t end) const {
  uint64_t hash = kFirstHash;
  for (int64_t length = 1; length <= std::min<int64_t>(kMaxN, end); ++length) {
    hash = extend(hash, tokens[static_cast<size_t>(end - length)]);
    __builtin_prefetch(&entries_[home(key_of(hash, length))], 1);
  }
}

void NgramIndex::take(Entry* entry, uint32_t key, int64_t end) {
  ++n_taken_;
  entry->key = key;
  entry->next = static_cast<uint32_t>(end) & INT32_MAX;
  entry->alone = 1;
}

void NgramIndex::enter(std::span<const int32_t> tokens, int64_t end) {
  uint64_t hash = kFirstHash;
  for (int64_t length = 1; length <= std::min<int64_t>(kMaxN, end); ++length) {
    hash = extend(hash, tokens[static_cast<size_t>(end - length)]);
    uint32_t key = key_of(hash, length);
    Entry& e = entries_[place(tokens, end, length, key)];
    if (e.next == 0) return take(&e, key, end);
    int64_t before = e.next;
    bool was_alone = e.alone;
    e.next = static_cast<uint32_t>(end) & INT32_MAX;
    e.alone = 0;
    if (!was_alone || length >= std::min<int64_t>(kMaxN, before)) continue;
    int64_t longer = length + 1;
    key = key_of(extend(hash, tokens[static_cast<size_t>(before - longer)]), longer);
    take(&entries_[place(tokens, before, longer, key)], key, before);
  }
}

void NgramIndex::update(std::span<const int32_t> tokens) {
  // An n-gram enters once the token behind it is known, so that the ending never finds itself.
  int64_t n = static_cast<int64_t>(tokens.size());
  int64_t first = std::max<int64_t>(n_seen_, 1);
  if (first < n) make_room(std::max<int64_t>(kMaxN, n - first));  // of a prompt: once, not by steps
  for (int64_t end = first; end < std::min(n, first + kTokensAhead); ++end) fetch(tokens, end);
  for (int64_t end = first; end < n; ++end) {
    make_room(kMaxN);
    if (end + kTokensAhead < n) fetch(tokens, end + kTokensAhead);
    enter(tokens, end);
  }
  n_seen_ = std::max(n_seen_, n);
}

NgramIndex::Match NgramIndex::find(std::span<const int32_t> tokens) const {
  int64_t n = static_cast<int64_t>(tokens.size());
  uint64_t hash = kFirstHash;
  Match m;
  for (int64_t length = 1; !entries_.empty() && length <= std::min<int64_t>(kMaxN, n); ++length) {
    hash = extend(hash, tokens[static_cast<size_t>(n - length)]);
    const Entry& e = entries_[place(tokens, n, length, key_of(hash, length))];
    if (e.next == 0) break;
    m = {static_cast<int32_t>(length), e.next};
    if (!e.alone) continue;
    auto same = [&](int64_t i) {
      return tokens[static_cast<size_t>(n - i)] == tokens[static_cast<size_t>(m.next - i)];
    };
    while (m.length < std::min<int64_t>(kMaxN, m.next) && same(m.length + 1)) ++m.length;
    break;
  }
  return m;
}

const NgramIndex::Match& NgramDrafter::match(const Sequence& sequence) {
  Text& text = texts_[sequence.order];
  if (text.n_matched == sequence.n_tokens()) return text.last;
  text.index.update(sequence.tokens);
  text.last = text.index.find(sequence.tokens);
  if (text.last.length < min_match_) text.last = {};
  text.n_matched = sequence.n_tokens();
  return text.last;
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
