#include "speculation/draft_windows.h"

#include <algorithm>

#include "base/check.h"

namespace pf {
namespace {

// A window that was not followed for so many calls gives its blocks to one that needs them.
constexpr uint64_t kIdleCalls = 1024;

}  // namespace

DraftWindows::DraftWindows(const Options& options, const DraftVocabulary* vocabulary)
    : options_(options), vocabulary_(vocabulary), pool_(options.n_blocks, options.block_tokens, 1) {
  check(options.n_tokens >= kLeastTokens, "a draft's window is too short");
}

int64_t DraftWindows::room(int64_t limit) { return std::min<int64_t>(kMaxTreeNodes, limit / 4); }

int64_t DraftWindows::limit(const Window& w) const {
  return std::min(options_.n_tokens, static_cast<int64_t>(w.blocks.size()) * options_.block_tokens);
}

std::span<const int32_t> DraftWindows::fed_for(int32_t token) const {
  return vocabulary_->feed(token);
}

// Behind the tokens; what was fed there already, and is the same, needs no second time.
void DraftWindows::append(std::span<const int32_t> tokens, Window* w) const {
  for (int32_t token : tokens) {
    bool known = !w->ahead.empty() && w->ahead.front() == token &&
                 w->filled == static_cast<int64_t>(w->tokens.size());
    w->tokens.push_back(token);
    if (known) {
      ++w->filled;
      w->ahead.erase(w->ahead.begin());
    } else {
      w->ahead.clear();
    }
  }
}

// The first tokens of the text and the recent ones, where there is no window yet.
void DraftWindows::begin(const Sequence& s, Window* w) const {
  const std::vector<int32_t>& text = s.tokens;
  auto feed = [&](size_t i) {
    return vocabulary_->empty() ? std::span(text).subspan(i, 1) : fed_for(text[i]);
  };
  std::vector<int32_t> recent;  // the last first
  size_t first = 0, last = text.size();
  auto most = static_cast<size_t>(options_.n_tokens);
  while (first < text.size() && w->tokens.size() < kFirstTokens) {
    auto pieces = feed(first++);
    w->tokens.insert(w->tokens.end(), pieces.begin(), pieces.end());
  }
  while (last > first && recent.size() < most) {
    auto pieces = feed(--last);
    recent.insert(recent.end(), pieces.rbegin(), pieces.rend());
  }
  w->tokens.insert(w->tokens.end(), recent.rbegin(), recent.rend());
}

// Drops the middle. The first tokens keep their places, and with them their K and V.
void DraftWindows::move_on(int64_t limit, Window* w) const {
  auto n = static_cast<int64_t>(w->tokens.size());
  int64_t n_first = std::min(kFirstTokens, limit / 4), n_recent = limit / 2 - n_first;
  if (n <= n_first + n_recent) return;
  w->tokens.erase(w->tokens.begin() + n_first, w->tokens.end() - n_recent);
  w->filled = std::min(w->filled, n_first);
  w->ahead.clear();
}

void DraftWindows::give_back(Window* w) {
  for (BlockId id : w->blocks) pool_.release(id - options_.first_block);
  w->blocks.clear();
  w->filled = 0;
  w->ahead.clear();
}

bool DraftWindows::take_from_idle() {
  Window* idle = nullptr;
  for (auto& [order, w] : windows_)
    if (!w.blocks.empty() && w.used + kIdleCalls < now_ && (!idle || w.used < idle->used))
      idle = &w;
  if (idle == nullptr) return false;
  give_back(idle);
  return true;
}

// Blocks for the tokens and a draft behind them; the window moves on where they do not suffice.
bool DraftWindows::make_room(Window* w) {
  auto n = static_cast<int64_t>(w->tokens.size());
  int64_t wanted = std::clamp(n + room(options_.n_tokens), kLeastTokens, options_.n_tokens);
  while (limit(*w) < wanted) {
    std::optional<BlockId> block = pool_.allocate();
    if (!block && !take_from_idle()) break;
    if (block) w->blocks.push_back(options_.first_block + *block);
  }
  int64_t most = limit(*w);
  if (most < kLeastTokens) return give_back(w), false;  // others may make more of them
  if (n > most - room(most)) move_on(most, w);
  return true;
}

bool DraftWindows::follow(const Sequence& s) {
  Window& w = windows_[s.order];
  w.used = ++now_;
  if (w.n_read == 0) {
    begin(s, &w);
  } else {
    for (int64_t i = w.n_read; i < s.n_tokens(); ++i) {
      int32_t token = s.tokens[static_cast<size_t>(i)];
      append(vocabulary_->empty() ? std::span(&token, 1) : fed_for(token), &w);
    }
  }
  w.n_read = s.n_tokens();
  if (w.tokens.empty() || !make_room(&w)) return false;
  w.filled = std::min(w.filled, static_cast<int64_t>(w.tokens.size()) - 1);
  return true;
}

int64_t DraftWindows::lag(const Sequence& s) const {
  const Window& w = at(s);
  return static_cast<int64_t>(w.tokens.size()) - w.filled;
}

DraftWindows::Job DraftWindows::job(const Sequence& s, int32_t n_draft) const {
  const Window& w = at(s);
  check(w.n_read == s.n_tokens(), "a draft's window lags behind its text");
  auto n = static_cast<int64_t>(w.tokens.size());
  Job job;
  job.base = w.filled;
  job.committed = std::span(w.tokens).subspan(static_cast<size_t>(w.filled));
  job.blocks = w.blocks;
  job.n_draft = static_cast<int32_t>(std::min<int64_t>(n_draft, limit(w) - n));
  job.offset = s.n_tokens() - n;
  return job;
}

DraftWindows::Job DraftWindows::catchup(const Sequence& s, int32_t n_tokens) const {
  Job due = job(s, 0);
  due.committed = due.committed.first(static_cast<size_t>(n_tokens));
  return due;
}

void DraftWindows::note(const Sequence& s, const Job& job, const DraftTree& tree) {
  Window& w = at(s);
  w.filled = job.base + static_cast<int64_t>(job.committed.size());
  w.ahead.clear();
  if (w.filled < static_cast<int64_t>(w.tokens.size())) return;
  // Nodes lie behind the committed tokens in node order, so those of a chain lie as a text does;
  // those of the last level were proposed and not fed.
  if (tree.n_grown_levels > 0) return;  // others lay between them
  for (int32_t i = 0; i < tree.size(); ++i) {
    auto n = static_cast<size_t>(i);
    if (tree.parents[n] != i - 1 || tree.depths[n] == tree.depth()) break;
    int32_t token = tree.tokens[n];
    w.ahead.push_back(vocabulary_->empty() ? token
                                           : vocabulary_->to_draft[static_cast<size_t>(token)]);
  }
}

DraftWindows::Job DraftWindows::job_ahead(const Sequence& s, const DraftTree& tree, int32_t n_draft,
                                          std::span<const int32_t> last) const {
  const Window& w = at(s);
  auto n = static_cast<int64_t>(w.tokens.size());
  Job job;
  job.base = n + tree.size() - 1;
  job.committed = last;
  job.blocks = w.blocks;
  job.n_draft =
      static_cast<int32_t>(std::clamp<int64_t>(limit(w) - n - tree.size() - 1, 0, n_draft));
  job.offset = s.n_tokens() - n;
  return job;
}

void DraftWindows::note_ahead(const Sequence& s, std::span<const int32_t> tokens) {
  Window& w = at(s);
  w.ahead.clear();
  for (int32_t token : tokens)
    w.ahead.push_back(vocabulary_->empty() ? token
                                           : vocabulary_->to_draft[static_cast<size_t>(token)]);
}

void DraftWindows::forget(const Sequence& s) {
  auto it = windows_.find(s.order);
  if (it == windows_.end()) return;
  give_back(&it->second);
  windows_.erase(it);
}

void DraftWindows::check_integrity() const {
  std::vector<int32_t> held(static_cast<size_t>(pool_.n_blocks()), 0);
  for (const auto& [order, w] : windows_) {
    check(w.filled <= static_cast<int64_t>(w.tokens.size()), "a draft's window is overfilled");
    for (BlockId id : w.blocks) ++held[static_cast<size_t>(id - options_.first_block)];
  }
  int32_t n_free = 0;
  for (BlockId id = 0; id < pool_.n_blocks(); ++id) {
    check(pool_.references(id) == held[static_cast<size_t>(id)],
          "a block of a draft's window is miscounted");
    n_free += held[static_cast<size_t>(id)] == 0;
  }
  check(n_free == pool_.n_free(), "free blocks of the draft's windows do not add up");
}

}  // namespace pf
