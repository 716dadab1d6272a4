#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pf::kernels {

// Who reads what in one step of paged attention (attention.h), worked out on the host.
//
// What a row's result is, bit for bit: the keys that it sees in order of position, cut at absolute
// multiples of kSplitTokens; within a split tiles of kTileTokens at absolute positions; splits
// folded in order within a group of kGroupTokens, groups folded in order. Everything below only
// decides who loads a key and where a partial result waits, so it cannot change a bit.
inline constexpr int32_t kTileTokens = 64;
inline constexpr int32_t kSplitTokens = 256;
inline constexpr int32_t kGroupTokens = 2048;
inline constexpr int32_t kItemQueries = 64;  // rows x heads of a KV head that an item may hold
inline constexpr int32_t kMaxRests = 8;      // of an item: paths that go on behind what all share

// The rows of a step, as Batch has them. A path is a root-to-leaf path of a tree; a tree node at
// position p >= visible lies in slot visible + i, where bit i of its mask is the (p - visible)-th.
// Where the device grows the tree and the host knows only the depths of its nodes, each node gets
// its own bit alone: it is then planned as a path of its own, which holds for every mask that the
// device may have written by the time the kernel reads it. Bits of nodes that were fed in passes
// before name no row here: a segment may begin with any node of its tree.
struct AttentionSegment {
  int32_t first_row = 0, n_rows = 0;
  std::span<const int32_t> blocks;  // slot s lies in blocks[s / P] at s % P
};
struct AttentionRows {
  std::span<const int32_t> positions, visible;  // [T]
  std::span<const uint64_t> masks;              // [T]
  std::span<const AttentionSegment> segments;   // ascending, disjoint, covering [0, T)
};

// Positions [begin, end) as the path of one row has them, met by rows [first, first + n) of the
// item (each only by those that it sees).
struct AttentionRun {
  int32_t table = 0;     // where its segment's blocks begin in `tables`
  int32_t path_row = 0;  // whose mask places positions beyond `visible`
  int32_t visible = 0;
  int32_t begin = 0, end = 0;
  int32_t first = 0, n = 0;
  int32_t unused = 0;  // 32 bytes
};
// Work of one block of threads for each KV head: rows that share most of what they read in one
// unit of positions (a split or a group). So a block of the KV cache that R rows see is loaded into
// shared memory by R / (kItemQueries / (H / G)) items, rounded up. More rows would need more
// registers than there are (64 queries are a warp's 16, whose sums of values fill half of them), so
// the rest is left to the L2: items of a unit that read the same blocks stand side by side, and so
// they run at the same time and find what the first one of them has loaded.
struct AttentionItem {
  int32_t first_row = 0, n_rows = 0;  // into item_rows
  int32_t first_run = 0, n_runs = 0;  // ascending for every row; at most kMaxRests + 1
};
struct AttentionItemRow {
  int32_t row = 0, part = 0;  // its partial result
};
// Row t's parts are [first, first + n), one per unit from `unit` on.
struct AttentionRowParts {
  int32_t first = 0, n = 0, unit = 0, unused = 0;
};

struct AttentionLimits {
  int32_t n_heads = 1, n_kv_heads = 1;  // H, G
  int32_t block_tokens = 16;            // P
  int32_t sliding_window = 0;           // tokens that a row sees, itself included; 0: all
  int32_t max_parts = 1;                // partial results that there is memory for
  int32_t min_blocks = 1;      // blocks of threads that fill the device: below it, units are splits
  int32_t first_position = 0;  // keys before it do not exist; no row stands there
};

// One thread uses it. After warm-up it allocates nothing.
class AttentionPlan {
 public:
  // Requires: H a multiple of G, H / G <= kItemQueries; max_parts >= the groups of one row.
  explicit AttentionPlan(AttentionLimits limits);

  // Plans rows [first_row, end) and returns end: as many rows as `max_parts` holds (all of a step
  // that decodes; a long prompt chunk may take several plans, one after the other on the same
  // memory). Row indices are those of the step. Deterministic.
  int32_t build(const AttentionRows& rows, int32_t first_row);

  // What the kernels read; copied to the device by the caller.
  std::span<const AttentionItem> items() const { return items_; }
  std::span<const AttentionRun> runs() const { return runs_; }
  std::span<const AttentionItemRow> item_rows() const { return item_rows_; }
  std::span<const AttentionRowParts> row_parts() const { return row_parts_; }  // [end - first_row]
  std::span<const int32_t> tables() const { return tables_; }
  int32_t unit_tokens() const { return unit_; }
  int32_t first_position() const { return limits_.first_position; }
  int32_t n_parts() const { return n_parts_; }

 private:
  struct Path {  // rows of a segment that lie on one path: path_rows_[first, first + n)
    int32_t path_row, first, n;
  };
  struct Member {  // rows of one path in the item under construction
    int32_t table, path_row, visible, begin, end, first, n;
  };

  int32_t begin_of(int32_t row) const;
  int32_t n_units(int32_t row, int32_t unit) const;
  void sort_segments();
  void find_paths(const AttentionSegment& segment);
  void build_units(int32_t unit);
  bool add_path(const Path& path, int32_t table, int32_t first, int32_t end);
  bool join(const Member& m);
  void close_item();

  AttentionLimits limits_;
  int32_t max_rows_;  // of an item
  AttentionRows rows_;
  int32_t first_row_ = 0, end_row_ = 0, unit_ = 0, n_parts_ = 0;
  std::vector<int32_t> order_;     // segments, those that share blocks side by side
  std::vector<int32_t> shared_;    // by place in order_: blocks shared with the one before
  std::vector<int32_t> table_of_;  // by segment
  std::vector<int32_t> path_end_;  // by segment: paths_ up to here are its own or of earlier ones
  std::vector<Path> paths_;
  std::vector<int32_t> path_rows_;
  // The open item: its members, the keys that all of them see alike, and the blocks that its last
  // segment shares with the one that is added next.
  std::vector<Member> members_;
  int32_t common_begin_ = 0, common_end_ = 0, link_ = 0;
  std::vector<AttentionItem> items_;
  std::vector<AttentionRun> runs_;
  std::vector<AttentionItemRow> item_rows_;
  std::vector<AttentionRowParts> row_parts_;
  std::vector<int32_t> tables_;
};

}  // namespace pf::kernels
