#include "speculation/draft_windows.h"

#include <algorithm>

#include "base/check.h"

namespace pf {
namespace {

// A window that was not followed for so many calls gives its blocks to one that needs them.
constexpr uint64_t kIdleCalls = 1024;
// A window that lags behind asks once in so many calls what others have computed meanwhile.
constexpr uint32_t kLookEvery = 4;

// Nodes lie behind the committed tokens in the order in which they were fed.
bool lies_as_text(const DraftTree& tree) {
  if (tree.n_grown_levels > 0) return false;  // others lay between them
  for (int32_t n = 0; n < tree.size(); ++n)
    if (tree.parents[static_cast<size_t>(n)] != n - 1) return false;
  return true;
}

}  // namespace

DraftWindows::DraftWindows(const Options& options, const DraftVocabulary* vocabulary)
    : options_(options),
      vocabulary_(vocabulary),
      kv_({options.n_blocks, options.block_tokens, 1, options.prefix_caching}) {
  check(options.n_tokens >= kLeastTokens, "a draft's window is too short");
}

int64_t DraftWindows::room(int64_t limit) { return std::min<int64_t>(kMaxTreeNodes, limit / 4); }

int64_t DraftWindows::limit(const Window& w) const {
  return std::min(options_.n_tokens,
                  static_cast<int64_t>(w.table.blocks.size()) * options_.block_tokens);
}

std::span<const int32_t> DraftWindows::fed_for(int32_t token) const {
  return vocabulary_->feed(token);
}

int32_t DraftWindows::own(int32_t token) const {
  return vocabulary_->empty() ? token : vocabulary_->to_draft[static_cast<size_t>(token)];
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

// Drops the middle. The rest stands in other places now, and goes on in other blocks.
void DraftWindows::move_on(int64_t limit, Window* w) const {
  auto n = static_cast<int64_t>(w->tokens.size());
  int64_t n_first = std::min(kFirstTokens, limit / 4), n_recent = limit / 2 - n_first;
  if (n <= n_first + n_recent) return;
  w->tokens.erase(w->tokens.begin() + n_first, w->tokens.end() - n_recent);
}

void DraftWindows::give_back(Window* w) {
  kv_.release(&w->table);
  w->blocks.clear();
  w->filled = 0;
  w->ahead.clear();
  w->caught_up = false;
}

void DraftWindows::name_blocks(Window* w) const {
  w->blocks = w->table.blocks;
  for (BlockId& id : w->blocks) id += options_.first_block;
}

bool DraftWindows::take_from_idle() {
  Window* idle = nullptr;
  for (auto& [order, w] : windows_)
    if (!w.table.blocks.empty() && w.used + kIdleCalls < now_ && (!idle || w.used < idle->used))
      idle = &w;
  if (idle == nullptr) return false;
  give_back(idle);
  return true;
}

// Blocks for so many slots, as far as there are any.
void DraftWindows::take_blocks(Window* w, int64_t n_slots) {
  while (limit(*w) < n_slots) {
    auto n_blocks = static_cast<int64_t>(w->table.blocks.size()) + 1;
    if (!kv_.reserve(&w->table, n_blocks * options_.block_tokens) && !take_from_idle()) break;
  }
}

// Blocks for the tokens and a draft behind them; the window moves on where they do not suffice. The
// root is fed by everybody, so it is no part of what is shared.
bool DraftWindows::make_room(const Sequence& s, Window* w) {
  auto n = static_cast<int64_t>(w->tokens.size());
  const int64_t wanted = std::clamp(n + room(options_.n_tokens), kLeastTokens, options_.n_tokens);
  for (;; n = static_cast<int64_t>(w->tokens.size())) {
    if (w->table.blocks.empty())
      w->filled = kv_.acquire_prefix(&w->table, w->tokens, s.request->cache_salt, n - 1);
    take_blocks(w, wanted);
    const int64_t most = limit(*w);
    if (most < kLeastTokens) return give_back(w), false;  // others may make more of them
    if (n <= most - room(most)) break;
    move_on(most, w);  // to half of it: this ends
    give_back(w);
  }
  name_blocks(w);
  return true;
}

// Siblings begin together; those that wait for their turn need not compute what the first one has.
void DraftWindows::look_again(const Sequence& s, Window* w) {
  auto n = static_cast<int64_t>(w->tokens.size());
  if (w->caught_up || w->table.blocks.empty() || ++w->n_followed % kLookEvery != 0) return;
  if (n - w->filled <= options_.block_tokens) return;
  if (kv_.find_prefix(w->tokens, s.request->cache_salt, n - 1).n_tokens > w->filled) give_back(w);
}

// States what has K and V. The root's slot is written again as long as nothing stands behind it.
void DraftWindows::share(const Sequence& s, Window* w) {
  int64_t n = std::min(w->filled, static_cast<int64_t>(w->tokens.size()) - 1);
  kv_.commit(&w->table, 0, w->tokens, n, s.request->cache_salt);
  name_blocks(w);  // one that was full may have given way to an equal one
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
  look_again(s, &w);
  if (w.tokens.empty() || !make_room(s, &w)) return false;
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
  share(s, &w);
  if (w.filled < static_cast<int64_t>(w.tokens.size())) return;
  w.caught_up = true;
  if (!lies_as_text(tree)) return;
  for (int32_t n = 0; n + 1 < tree.size(); ++n)  // the last one was proposed and not fed
    w.ahead.push_back(own(tree.tokens[static_cast<size_t>(n)]));
}

void DraftWindows::settle(const Sequence& s, const DraftTree& tree, std::span<const int32_t> path,
                          std::vector<SlotMove>* moves) {
  if (lies_as_text(tree)) return;  // there already; more may have been made ready behind it
  Window& w = at(s);
  w.ahead.clear();
  const auto first = static_cast<int32_t>(w.tokens.size());
  for (int32_t node : path) {
    int32_t place = tree.place_in_draft(node), to = static_cast<int32_t>(w.ahead.size());
    if (place < 0) return;
    if (place != to) moves->push_back({w.blocks, first + place, first + to});
    w.ahead.push_back(own(tree.tokens[static_cast<size_t>(node)]));
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
  for (int32_t token : tokens) w.ahead.push_back(own(token));
}

void DraftWindows::forget(const Sequence& s) {
  auto it = windows_.find(s.order);
  if (it == windows_.end()) return;
  give_back(&it->second);
  windows_.erase(it);
}

void DraftWindows::check_integrity() const {
  std::vector<const BlockTable*> tables;
  for (const auto& [order, w] : windows_) {
    check(w.filled <= static_cast<int64_t>(w.tokens.size()), "a draft's window is overfilled");
    check(w.table.filled.empty() || w.table.filled[0] <= w.filled,
          "a draft's window shares what it has not computed");
    check(w.blocks.size() == w.table.blocks.size(), "a draft's window has lost a block");
    tables.push_back(&w.table);
  }
  kv_.check_integrity(tables);
}

}  // namespace pf
