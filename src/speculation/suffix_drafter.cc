#include "speculation/suffix_drafter.h"

#include <algorithm>

namespace pf {

void SuffixMemory::append(int32_t token) {
  if (recent_.n_tokens() >= n_most_) {
    older_ = std::move(recent_);
    recent_ = SuffixIndex();
  }
  recent_.append(token);
}

SuffixDrafter::Own& SuffixDrafter::update(const Sequence& sequence) {
  Own& own = own_[sequence.order];
  int64_t n = std::min(sequence.n_tokens(), own.n_seen + kTokensPerCall);
  for (; own.n_seen < n; ++own.n_seen)
    own.text.append(sequence.tokens[static_cast<size_t>(own.n_seen)]);
  return own;
}

SuffixDrafter::Match SuffixDrafter::find(const Own& own, const Shared* shared,
                                         std::span<const int32_t> context) const {
  Match best;
  auto consider = [&](const SuffixIndex& index) {
    int32_t n = index.match(context);
    if (n > best.length) best = {&index, n};
  };
  consider(own.text.recent());
  consider(own.text.older());
  if (shared != nullptr) {
    consider(shared->outputs.recent());
    consider(shared->outputs.older());
  }
  return best.length >= min_match_ ? best : Match{};
}

int32_t SuffixDrafter::match_length(const Sequence& sequence) {
  const Own& own = update(sequence);
  if (own.n_seen < sequence.n_tokens()) return 0;
  auto it = shared_.find(sequence.request->cache_salt);
  return find(own, it == shared_.end() ? nullptr : &it->second, sequence.tokens).length;
}

void SuffixDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  for (size_t i = 0; i < tasks.size(); ++i) {
    trees[i].clear();
    const Own& own = update(*tasks[i].sequence);
    if (own.n_seen < tasks[i].sequence->n_tokens()) continue;
    auto it = shared_.find(tasks[i].sequence->request->cache_salt);
    if (it != shared_.end()) it->second.last_used = ++n_uses_;
    grow(tasks[i], own, it == shared_.end() ? nullptr : &it->second, &trees[i]);
  }
}

// Level by level; every node looks for its own longest match, over the text and what was proposed
// on the way to it.
void SuffixDrafter::grow(const DraftTask& task, const Own& own, const Shared* shared,
                         DraftTree* tree) {
  const std::vector<int32_t>& text = task.sequence->tokens;
  for (int32_t parent = DraftTree::kRoot; parent < tree->size(); ++parent) {
    int32_t depth = parent < 0 ? 0 : tree->depths[static_cast<size_t>(parent)];
    if (depth == task.depth() || tree->size() == task.n_draft) return;
    context_.clear();
    for (int32_t n = parent; n >= 0; n = tree->parents[static_cast<size_t>(n)])
      context_.push_back(tree->tokens[static_cast<size_t>(n)]);
    for (auto t = text.rbegin(); t != text.rend() && context_.size() < SuffixIndex::kMaxMatch; ++t)
      context_.push_back(*t);
    std::reverse(context_.begin(), context_.end());
    Match m = find(own, shared, context_);
    if (m.index == nullptr) continue;
    int32_t width = task.shape.widths.empty() ? 1 : task.shape.widths[static_cast<size_t>(depth)];
    m.index->followers(std::span(context_).last(static_cast<size_t>(m.length)),
                       std::min(width, task.n_draft - tree->size()), &followers_);
    for (int32_t t : followers_) tree->add_one_hot(t, parent);
  }
}

void SuffixDrafter::forget(const Sequence& sequence) {
  own_.erase(sequence.order);
  int64_t n = std::min(sequence.n_generated(), kOutputTokens);
  if (n == 0) return;
  const std::string& salt = sequence.request->cache_salt;
  Shared& shared = shared_[salt];
  shared.last_used = ++n_uses_;
  n_shared_ -= shared.outputs.n_tokens();
  for (int32_t t : std::span(sequence.tokens).last(static_cast<size_t>(n)))
    shared.outputs.append(t);
  shared.outputs.end_text();
  n_shared_ += shared.outputs.n_tokens();
  make_room(salt);
}

void SuffixDrafter::make_room(const std::string& for_salt) {
  while (n_shared_ > kAllShared) {
    auto oldest = shared_.end();
    for (auto it = shared_.begin(); it != shared_.end(); ++it)
      if (it->first != for_salt &&
          (oldest == shared_.end() || it->second.last_used < oldest->second.last_used))
        oldest = it;
    if (oldest == shared_.end()) return;
    n_shared_ -= oldest->second.outputs.n_tokens();
    shared_.erase(oldest);
  }
}

}  // namespace pf
