#include "speculation/lookahead_drafter.h"

#include <algorithm>

namespace pf {

void GramPool::add(int32_t key, const Tail& tail) {
  auto [it, is_new] = tails_.try_emplace(key);
  if (is_new) {
    order_.push_back(key);
    if (order_.size() > kKeys) {
      tails_.erase(order_.front());
      order_.pop_front();
    }
  }
  Tails& t = it->second;
  auto end = t.list.begin() + static_cast<std::ptrdiff_t>(t.n);
  auto old = std::find(t.list.begin(), end, tail);
  if (old == end) {
    if (t.n < kPerKey) ++t.n;
    old = t.list.begin() + static_cast<std::ptrdiff_t>(t.n) - 1;
    *old = tail;
  }
  std::rotate(t.list.begin(), old, old + 1);
}

std::span<const GramPool::Tail> GramPool::find(int32_t key) const {
  auto it = tails_.find(key);
  if (it == tails_.end()) return {};
  return std::span(it->second.list).first(it->second.n);
}

int32_t LookaheadDrafter::Branches::child(int32_t parent, int32_t token) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (parents[i] == parent && tokens[i] == token) return static_cast<int32_t>(i);
  int32_t depth = parent < 0 ? 1 : depths[static_cast<size_t>(parent)] + 1;
  if (depth > deepest || static_cast<int32_t>(tokens.size()) >= room) return -2;
  tokens.push_back(token);
  parents.push_back(parent);
  depths.push_back(depth);
  return static_cast<int32_t>(tokens.size()) - 1;
}

// The first guesses are the last tokens of the text and what follows them there: any will do, the
// iteration finds better ones.
void LookaheadDrafter::begin(const Sequence& sequence, Mind* mind) const {
  if (mind->begun) return;
  mind->begun = true;
  auto n = static_cast<size_t>(sequence.n_tokens());
  for (size_t c = 0; c < kColumns; ++c) {
    size_t at = n - 1 - c % n;
    mind->first[c] = sequence.tokens[at];
    mind->second[c] = sequence.tokens[(at + 1) % n];
  }
}

void LookaheadDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  for (size_t i = 0; i < tasks.size(); ++i) {
    trees[i].clear();
    const Sequence& s = *tasks[i].sequence;
    Mind& mind = minds_[s.order];
    mind.n_columns = 0;
    if (tasks[i].n_draft <= 0) continue;
    begin(s, &mind);
    branches_.tokens.clear();
    branches_.parents.clear();
    branches_.depths.clear();
    branches_.deepest = tasks[i].deepest;
    int32_t room = std::min(tasks[i].n_draft, kMaxTreeNodes);
    branches_.room = (room + 1) / 2;
    add_grams(mind, s.tokens.back(), &branches_);
    branches_.room = room;
    add_window(&mind, &branches_);
    write(branches_, &mind, &trees[i]);
  }
}

// N-grams behind the last token, and on from the end of each with the latest one there.
void LookaheadDrafter::add_grams(const Mind& mind, int32_t last, Branches* tree) const {
  for (const GramPool::Tail& tail : mind.pool.find(last)) {
    int32_t node = DraftTree::kRoot;
    std::span<const GramPool::Tail> next(&tail, 1);
    while (!next.empty() && node != -2) {
      for (int32_t token : next.front())
        if (node != -2) node = tree->child(node, token);
      next = mind.pool.find(next.front().back());
    }
  }
}

// Whole columns, as many as fit.
void LookaheadDrafter::add_window(Mind* mind, Branches* tree) const {
  int32_t at = DraftTree::kRoot;
  for (int32_t c = 0; c < kColumns; ++c) {
    auto i = static_cast<size_t>(c);
    at = tree->child(at, mind->first[i]);
    int32_t second = at == -2 ? -2 : tree->child(at, mind->second[i]);
    if (second == -2) return;
    mind->second_node[i] = second;
    mind->n_columns = c + 1;
  }
}

void LookaheadDrafter::write(const Branches& from, Mind* mind, DraftTree* tree) {
  place_.assign(from.tokens.size(), 0);
  for (int32_t depth = 1; tree->size() < static_cast<int32_t>(from.tokens.size()); ++depth)
    for (size_t i = 0; i < from.tokens.size(); ++i) {
      if (from.depths[i] != depth) continue;
      place_[i] = tree->size();
      int32_t parent = from.parents[i];
      tree->add_one_hot(from.tokens[i], parent < 0 ? parent : place_[static_cast<size_t>(parent)]);
    }
  for (size_t c = 0; c < static_cast<size_t>(mind->n_columns); ++c)
    mind->second_node[c] = place_[static_cast<size_t>(mind->second_node[c])];
}

uint64_t LookaheadDrafter::watched(const Sequence& sequence) const {
  auto it = minds_.find(sequence.order);
  uint64_t nodes = 0;
  for (size_t c = 0; it != minds_.end() && c < static_cast<size_t>(it->second.n_columns); ++c)
    nodes |= uint64_t{1} << it->second.second_node[c];
  return nodes;
}

// A column stands one position further on after each round; when more tokens came, the first ones
// have passed, and new last ones go on from the guesses of the one before.
void LookaheadDrafter::see(const Sequence& sequence, std::span<const int32_t> argmax,
                           int64_t n_new) {
  auto it = minds_.find(sequence.order);
  if (it == minds_.end()) return;
  Mind& m = it->second;
  for (size_t c = 0; c < static_cast<size_t>(m.n_columns); ++c) {
    int32_t token = argmax[static_cast<size_t>(m.second_node[c])];
    if (token < 0) continue;  // the row was not finite
    m.pool.add(m.first[c], {m.second[c], token});
    m.first[c] = m.second[c];
    m.second[c] = token;
  }
  m.n_columns = 0;
  auto passed = std::clamp<int64_t>(n_new - 1, 0, kColumns - 1);
  for (Level* level : {&m.first, &m.second})
    std::rotate(level->begin(), level->begin() + passed, level->end());
  for (auto c = static_cast<size_t>(kColumns - passed); c < kColumns; ++c) {
    m.first[c] = m.second[c - 1];
    std::span<const GramPool::Tail> known = m.pool.find(m.first[c]);
    if (!known.empty()) m.second[c] = known.front()[0];
  }
}

}  // namespace pf
