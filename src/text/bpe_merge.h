#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace pf {

// A run of a piece that is one token, or not yet one (id -1).
struct BpeSymbol {
  uint32_t begin;   // in the piece, bytes
  uint32_t length;  // 0: merged into the symbol before it
  int32_t id;
  int32_t previous, next;  // places in the list, -1 at its ends
};

struct BpeMerge {
  double order;  // the smallest merges first; equal ones from left to right
  int32_t id;    // of the result
};

// Byte-pair merging with a queue over a linked list: n symbols take O(n log n), whatever they are.
// An entry in the queue is stale when one of its two symbols has grown or gone since; symbols only
// grow, so the sum of their lengths tells.
class BpeMerger {
 public:
  std::vector<BpeSymbol> symbols;

  void add(uint32_t begin, uint32_t length, int32_t id) {
    const auto n = static_cast<int32_t>(symbols.size());
    if (n > 0) symbols.back().next = n;
    symbols.push_back({begin, length, id, n - 1, -1});
  }

  // lookup(left, right) -> optional<BpeMerge>; on_merge(left, right, result id) sees each merge
  // just before it happens. Returns the number of entries taken from the queue.
  template <class Lookup, class OnMerge>
  int64_t merge(const Lookup& lookup, const OnMerge& on_merge) {
    std::vector<Entry> storage;
    storage.reserve(symbols.size());
    Queue queue(std::greater<Entry>(), std::move(storage));
    const auto push = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const BpeSymbol &l = symbols[left], &r = symbols[right];
      if (const std::optional<BpeMerge> m = lookup(l, r))
        queue.push({m->order, left, right, l.length + r.length, m->id});
    };
    for (size_t i = 1; i < symbols.size(); ++i)
      push(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
    int64_t n_pops = 0;
    for (; !queue.empty(); ++n_pops) {
      const Entry e = queue.top();
      queue.pop();
      BpeSymbol &l = symbols[e.left], &r = symbols[e.right];
      if (l.length == 0 || r.length == 0 || l.length + r.length != e.length) continue;
      on_merge(l, r, e.id);
      l.length = e.length;
      l.id = e.id;
      l.next = r.next;
      r.length = 0;
      if (l.next >= 0) symbols[l.next].previous = e.left;
      push(l.previous, e.left);
      push(e.left, l.next);
    }
    return n_pops;
  }

 private:
  struct Entry {
    double order;
    int32_t left, right;
    uint32_t length;
    int32_t id;
    bool operator>(const Entry& o) const {
      return order != o.order ? order > o.order : left > o.left;
    }
  };
  using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>>;
};

}  // namespace pf
