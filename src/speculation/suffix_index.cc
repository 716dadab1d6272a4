#include "speculation/suffix_index.h"

#include <algorithm>
#include <utility>

namespace pf {

size_t EdgeTable::home(int32_t parent, int32_t token) const {
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(parent)) << 32 | static_cast<uint32_t>(token);
  uint64_t hash = key * 0xbf58476d1ce4e5b9ull;
  hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ull;
  return hash >> (64 - bits_);
}

size_t EdgeTable::place(int32_t parent, int32_t token) const {
  size_t at = home(parent, token);
  for (; entries_[at].child != kNone; at = (at + 1) & (entries_.size() - 1))
    if (entries_[at].parent == parent && entries_[at].token == token) break;
  return at;
}

void EdgeTable::put(int32_t parent, int32_t token, int32_t child) {
  Entry& e = entries_[place(parent, token)];
  n_taken_ += e.child == kNone;
  e = {parent, token, child};
  if (2 * n_taken_ > entries_.size()) grow();
}

void EdgeTable::grow() {
  std::vector<Entry> old(2 * entries_.size());
  std::swap(entries_, old);
  ++bits_;
  for (const Entry& e : old)
    if (e.child != kNone) entries_[place(e.parent, e.token)] = e;
}

int32_t SuffixIndex::length(int32_t id) const {
  const Node& n = node(id);
  return std::min(n.end, static_cast<int32_t>(tokens_.size())) - n.begin;
}

int32_t SuffixIndex::add_node(int32_t parent, int32_t begin, int32_t end) {
  int32_t id = static_cast<int32_t>(nodes_.size());
  Node n;
  n.begin = begin;
  n.end = end;
  n.parent = parent;
  n.next = node(parent).first_child;
  nodes_.push_back(n);
  if (n.next != kNone) node(n.next).previous = id;
  node(parent).first_child = id;
  children_.put(parent, token(begin), id);
  return id;
}

void SuffixIndex::enter(int32_t id) {
  ++node(id).count;
  node(id).last = static_cast<int32_t>(tokens_.size());
}

void SuffixIndex::append(int32_t token) {
  tokens_.push_back(token);
  int32_t n = static_cast<int32_t>(tokens_.size());
  auto grown =
      std::find_if(growing_.begin(), growing_.end(), [&](int32_t id) { return node(id).end > n; });
  growing_.erase(growing_.begin(), grown);
  points_.push_back({0, 0});
  for (const Point& p : points_)
    if (p.offset == length(p.node)) children_.fetch(p.node, token);
  // The points are nested: each is the one before it without its first token.
  size_t kept = 0, all = points_.size();
  int32_t depth = 0;  // of a point, this token included
  for (size_t i = 0; i < all; ++i) {
    depth = static_cast<int32_t>(all - i);
    if (advance(&points_[i], token, depth)) std::swap(points_[kept++], points_[i]);
  }
  points_.resize(kept);
}

// False: the suffix became a leaf, or is as long as the tree is deep.
bool SuffixIndex::advance(Point* point, int32_t token, int32_t depth) {
  int32_t n = static_cast<int32_t>(tokens_.size());
  if (point->offset == length(point->node)) {
    int32_t next = children_.find(point->node, token);
    if (next != kNone) {
      *point = {next, 1};
      enter(next);
      return depth < kDepth;
    }
  } else if (this->token(node(point->node).begin + point->offset) == token) {
    ++point->offset;
    return depth < kDepth;
  } else {
    point->node = split(*point);
  }
  int32_t leaf = add_node(point->node, n - 1, n - depth + kDepth);
  enter(leaf);
  if (node(leaf).end > n) growing_.push_back(leaf);
  return false;
}

// Makes a point within an edge a node. The lower part keeps its id; points on the edge move over.
int32_t SuffixIndex::split(Point at) {
  int32_t upper = static_cast<int32_t>(nodes_.size());
  Node above = node(at.node);
  above.end = above.begin + at.offset;
  above.first_child = at.node;
  nodes_.push_back(above);
  if (above.previous != kNone)
    node(above.previous).next = upper;
  else
    node(above.parent).first_child = upper;
  if (above.next != kNone) node(above.next).previous = upper;
  children_.put(above.parent, token(above.begin), upper);

  Node& lower = node(at.node);
  lower.begin = above.end;
  lower.parent = upper;
  lower.next = lower.previous = kNone;
  children_.put(upper, token(lower.begin), at.node);
  for (Point& p : points_) {
    if (p.node != at.node) continue;
    if (p.offset > at.offset) {
      p.offset -= at.offset;
    } else {  // has not come so far yet
      p.node = upper;
      --lower.count;
    }
  }
  return upper;
}

void SuffixIndex::end_text() {
  // What stopped within an edge has entered only its upper part.
  for (size_t i = 0; i < points_.size(); ++i)
    if (points_[i].offset < length(points_[i].node)) split(points_[i]);
  points_.clear();
  for (int32_t id : growing_) node(id).end = static_cast<int32_t>(tokens_.size());
  growing_.clear();
}

bool SuffixIndex::walk(std::span<const int32_t> context, Point* point) const {
  *point = {0, 0};
  for (int32_t t : context) {
    if (point->offset < length(point->node)) {
      if (token(node(point->node).begin + point->offset) != t) return false;
      ++point->offset;
    } else {
      int32_t next = children_.find(point->node, t);
      if (next == kNone) return false;
      *point = {next, 1};
    }
  }
  return true;
}

bool SuffixIndex::goes_on(Point point) const {
  return point.offset < length(point.node) || node(point.node).first_child != kNone;
}

int32_t SuffixIndex::match(std::span<const int32_t> context) const {
  // What goes on behind a run of tokens goes on behind its endings too: double, then halve.
  const int32_t most = std::min(kMaxMatch, static_cast<int32_t>(context.size()));
  auto is_there = [&](int32_t n) {
    Point point;
    return walk(context.last(static_cast<size_t>(n)), &point) && goes_on(point);
  };
  int32_t low = 0, next = 1;  // is there; is to be tried
  while (next <= most && is_there(next)) low = std::exchange(next, 2 * next);
  int32_t high = std::min(most, next - 1);
  while (low < high) {
    int32_t middle = (low + high + 1) / 2;
    if (is_there(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

void SuffixIndex::followers(std::span<const int32_t> context, int32_t n,
                            std::vector<int32_t>* out) const {
  out->clear();
  Point point;
  if (!walk(context, &point)) return;
  if (point.offset < length(point.node)) {
    out->push_back(token(node(point.node).begin + point.offset));
    return;
  }
  auto before = [&](int32_t a, int32_t b) {
    const Node &x = node(a), &y = node(b);
    return x.count != y.count ? x.count > y.count : x.last > y.last;
  };
  for (int32_t c = node(point.node).first_child; c != kNone; c = node(c).next) {
    auto place = std::upper_bound(out->begin(), out->end(), c, before);
    out->insert(place, c);
    if (static_cast<int32_t>(out->size()) > n) out->pop_back();
  }
  for (int32_t& c : *out) c = token(node(c).begin);
}

}  // namespace pf
