#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pf {

// (node, first token of an edge below it) -> the node that the edge leads to. An open table, at
// most half full: 24 to 48 bytes an edge, and looking one up reads one line of the cache mostly.
class EdgeTable {
 public:
  static constexpr int32_t kNone = -1;

  int32_t find(int32_t parent, int32_t token) const { return entries_[place(parent, token)].child; }
  void put(int32_t parent, int32_t token, int32_t child);
  void fetch(int32_t parent, int32_t token) const {  // is looked up soon
    __builtin_prefetch(&entries_[home(parent, token)], 1);
  }

 private:
  struct Entry {
    int32_t parent = 0, token = 0;
    int32_t child = kNone;  // the entry is free
  };
  static constexpr int kFirstBits = 6;  // log2 of a new table's entries

  size_t home(int32_t parent, int32_t token) const;
  // Where the edge is, or the free entry where it would be.
  size_t place(int32_t parent, int32_t token) const;
  void grow();

  std::vector<Entry> entries_ = std::vector<Entry>(size_t{1} << kFirstBits);
  int bits_ = kFirstBits;
  size_t n_taken_ = 0;
};

// How often, in some texts, every run of up to kDepth tokens stood, and what followed it: a
// suffix tree cut at depth kDepth, built online. Appending a token costs as many steps as its
// longest repetition is long, kDepth at most; a text of n tokens has at most 2 n nodes.
//
// An edge is a piece of the texts. A suffix that is still on known ground is a point on an edge and
// moves along with every token; where it leaves the known, it becomes a leaf, which grows by
// itself from then on (as in Ukkonen, "On-line construction of suffix trees", 1995).
class SuffixIndex {
 public:
  static constexpr int32_t kMaxMatch = 32;          // tokens of context that are looked at
  static constexpr int32_t kDepth = kMaxMatch + 1;  // and the token behind them

  void append(int32_t token);
  void end_text();  // what is appended next begins a text of its own
  int64_t n_tokens() const { return static_cast<int64_t>(tokens_.size()); }

  // The longest ending of `context`, up to kMaxMatch tokens, that stands in the texts with a token
  // behind it. 0: none. A context that is itself the end of the texts does not find itself.
  int32_t match(std::span<const int32_t> context) const;

  // What most often stood behind these `context.size()` tokens; among equals, what did so last.
  // At most n of them, most frequent first. Requires: n >= 1, context.size() <= kMaxMatch.
  void followers(std::span<const int32_t> context, int32_t n, std::vector<int32_t>* out) const;

 private:
  static constexpr int32_t kNone = EdgeTable::kNone;
  struct Node {                  // and the edge that leads to it
    int32_t begin = 0, end = 0;  // the edge is tokens_[begin, min(end, size))
    int32_t parent = kNone;
    int32_t first_child = kNone, next = kNone, previous = kNone;
    int32_t count = 0;  // suffixes that entered the edge
    int32_t last = 0;   // when the latest one did, in tokens
  };
  struct Point {  // so many tokens down the edge of a node
    int32_t node = 0, offset = 0;
  };

  Node& node(int32_t id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  int32_t token(int32_t at) const { return tokens_[static_cast<size_t>(at)]; }
  int32_t length(int32_t id) const;
  int32_t add_node(int32_t parent, int32_t begin, int32_t end);
  void enter(int32_t id);
  bool advance(Point* point, int32_t token, int32_t depth);
  int32_t split(Point at);
  bool walk(std::span<const int32_t> context, Point* point) const;
  bool goes_on(Point point) const;

  std::vector<int32_t> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);  // 0 is the root
  EdgeTable children_;
  std::vector<Point> points_;     // suffixes on known ground, the longest first
  std::vector<int32_t> growing_;  // leaves whose end lies beyond the texts, the nearest first
};

}  // namespace pf
