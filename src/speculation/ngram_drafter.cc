#include "speculation/ngram_drafter.h"

#include <algorithm>
#include <bit>

namespace pf {

namespace {

constexpr int kFirstBits = 7;        // log2 of a new table's entries
constexpr int64_t kTokensAhead = 8;  // entries are fetched so long before they are needed

}  // namespace

uint32_t NgramIndex::key_of(std::span<const int32_t> tokens, int64_t end, int64_t length) {
  static_assert(kMaxN == 4, "two bits of a key hold the length");
  uint64_t h = 0x9e3779b97f4a7c15ull;
  for (int64_t i = end - 1; i >= end - length; --i) {
    h ^= static_cast<uint64_t>(static_cast<uint32_t>(tokens[static_cast<size_t>(i)])) + 1;
    h *= 0xbf58476d1ce4e5b9ull;
    h ^= h >> 32;
  }
  return (static_cast<uint32_t>(h) * 0x94d049bbu & ~3u) | static_cast<uint32_t>(length - 1);
}

size_t NgramIndex::place(std::span<const int32_t> tokens, int64_t end, int64_t length) const {
  uint32_t key = key_of(tokens, end, length);
  auto is_here = [&](int64_t next) {
    return std::equal(tokens.begin() + end - length, tokens.begin() + end,
                      tokens.begin() + next - length);
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
  for (const Entry& e : old) {
    if (e.next == 0) continue;
    size_t at = home(e.key);
    while (entries_[at].next != 0) at = (at + 1) & (size - 1);
    entries_[at] = e;
  }
}

void NgramIndex::take(std::span<const int32_t> tokens, int64_t end, int64_t length) {
  ++n_taken_;
  Entry& e = entries_[place(tokens, end, length)];
  e.key = key_of(tokens, end, length);
  e.next = static_cast<uint32_t>(end) & INT32_MAX;
  e.alone = 1;
}

void NgramIndex::enter(std::span<const int32_t> tokens, int64_t end) {
  for (int64_t length = 1; length <= std::min<int64_t>(kMaxN, end); ++length) {
    Entry& e = entries_[place(tokens, end, length)];
    if (e.next == 0) return take(tokens, end, length);
    int64_t before = e.next;
    bool was_alone = e.alone;
    e.next = static_cast<uint32_t>(end) & INT32_MAX;
    e.alone = 0;
    if (was_alone && length < std::min<int64_t>(kMaxN, before)) take(tokens, before, length + 1);
  }
}

void NgramIndex::update(std::span<const int32_t> tokens) {
  // An n-gram enters once the token behind it is known, so that the ending never finds itself.
  int64_t n = static_cast<int64_t>(tokens.size());
  for (int64_t end = std::max<int64_t>(n_seen_, 1); end < n; ++end) {
    make_room(kMaxN);
    if (int64_t ahead = end + kTokensAhead; ahead < n)
      for (int64_t length : {1, 2})
        __builtin_prefetch(&entries_[home(key_of(tokens, ahead, length))], 1);
    enter(tokens, end);
  }
  n_seen_ = std::max(n_seen_, n);
}

NgramIndex::Match NgramIndex::find(std::span<const int32_t> tokens) const {
  int64_t n = static_cast<int64_t>(tokens.size());
  Match m;
  for (int64_t length = 1; !entries_.empty() && length <= std::min<int64_t>(kMaxN, n); ++length) {
    const Entry& e = entries_[place(tokens, n, length)];
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
