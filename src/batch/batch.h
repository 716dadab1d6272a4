#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "sampling/draft_tree.h"

namespace pf {

// The rows of one sequence: n_plain committed tokens in order, then tree nodes. Without committed
// tokens, nodes of a tree whose root and first nodes were fed in passes before.
struct Segment {
  int32_t first_row = 0;
  int32_t n_rows = 0;
  int32_t n_plain = 0;
  int64_t base = 0;                 // tokens before the first plain row: its position
  std::span<const BlockId> blocks;  // logical slot s lies in blocks[s / P] at s % P

  // Logical slot of tree node i; its position differs when the tree branches.
  int64_t node_slot(int32_t node) const { return base + n_plain + node; }
};

// One forward pass. Row r feeds tokens[r] at positions[r], stores K and V in logical slot
// slots[r] of its segment, and sees slots [0, visible[r]) plus node_slot(i) for each bit i of
// masks[r] (a tree node's own bit included), nothing else. A plain row sees itself through
// visible = position + 1 and has mask 0; a node has visible = base + n_plain.
// In position order a row sees exactly positions 0..positions[r], one key each.
struct Batch {
  std::vector<int32_t> tokens;       // [T]
  std::vector<int32_t> positions;    // [T]
  std::vector<int32_t> slots;        // [T] logical, of the row's segment
  std::vector<int32_t> visible;      // [T]
  std::vector<uint64_t> masks;       // [T]
  std::vector<int32_t> row_segment;  // [T]
  std::vector<Segment> segments;     // [B] ascending, disjoint, covering [0, T)
  std::vector<int32_t> logit_rows;   // [R] ascending: rows whose hidden state the head will read

  int32_t n_rows() const { return static_cast<int32_t>(tokens.size()); }
  void clear();

  // A judged segment's logit rows follow each other: the last plain row's, then every node's. The
  // index of the first of them among logit_rows, and how many there are.
  // Requires: it has a plain row.
  int32_t first_logit_row(const Segment& s) const {
    auto at = std::lower_bound(logit_rows.begin(), logit_rows.end(), s.first_row + s.n_plain - 1);
    return static_cast<int32_t>(at - logit_rows.begin());
  }
  static int32_t n_logit_rows(const Segment& s) { return s.n_rows - s.n_plain + 1; }

  // Appends the committed tokens at positions [base, base + tokens.size()) and the nodes of `tree`
  // (null: none). Logits: none, the last plain row and all nodes, or every row.
  enum class Logits { kNone, kLast, kAll };
  void add(std::span<const int32_t> committed, int64_t base, const DraftTree* tree,
           std::span<const BlockId> blocks, Logits logits);
  // Appends the nodes of `tree` from `first` on. Its root stands at position `root`; K and V of
  // that and of the nodes before `first` lie where `add` with this tree would have put them.
  void add_nodes(const DraftTree& tree, int32_t first, int64_t root,
                 std::span<const BlockId> blocks, Logits logits);

 private:
  void add_row(int32_t token, int64_t position, int64_t slot, int64_t sees, uint64_t mask,
               bool wants_logits);
  void add_rows_of_nodes(const DraftTree& tree, int32_t first, bool wants_logits);
};

}  // namespace pf
