// Segments are sorted by their block tables once, so that those with a common prefix stand side by
// side; then unit by unit the rows are packed into items, path by path. A path joins the open item
// when at least half of what each member reads is common to all, so that one block of threads does
// not walk many rests: the common keys are read once, the rest of each path after them.
#include "kernels/attention_plan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace pf::kernels {
namespace {

int32_t round_down(int32_t x, int32_t unit) { return x / unit * unit; }

// How many leading blocks are the same.
int32_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  constexpr size_t kStep = 64;  // compared at once
  size_t n = std::min(a.size(), b.size()), i = 0;
  while (i + kStep <= n && std::memcmp(&a[i], &b[i], kStep * sizeof(int32_t)) == 0) i += kStep;
  while (i < n && a[i] == b[i]) ++i;
  return static_cast<int32_t>(i);
}

}  // namespace

AttentionPlan::AttentionPlan(AttentionLimits limits) : limits_(limits) {
  check(limits.n_kv_heads > 0 && limits.n_heads % limits.n_kv_heads == 0,
        "attention: query heads must be a multiple of KV heads");
  check(limits.n_heads / limits.n_kv_heads <= kItemQueries,
        "attention: more than 64 query heads to a KV head are not supported");
  check(limits.block_tokens > 0 && limits.max_parts > 0, "attention: a limit is missing");
  max_rows_ = kItemQueries / (limits.n_heads / limits.n_kv_heads);
}

int32_t AttentionPlan::begin_of(int32_t row) const {
  if (limits_.sliding_window <= 0) return limits_.first_position;
  return std::max(limits_.first_position,
                  rows_.positions[static_cast<size_t>(row)] + 1 - limits_.sliding_window);
}

int32_t AttentionPlan::n_units(int32_t row, int32_t unit) const {
  return rows_.positions[static_cast<size_t>(row)] / unit - begin_of(row) / unit + 1;
}

int32_t AttentionPlan::build(const AttentionRows& rows, int32_t first_row) {
  rows_ = rows;
  first_row_ = first_row;
  int32_t n_rows = static_cast<int32_t>(rows.positions.size());
  int64_t n_parts = 0, n_split_parts = 0;
  for (end_row_ = first_row; end_row_ < n_rows; ++end_row_) {
    n_parts += n_units(end_row_, kGroupTokens);
    if (n_parts > limits_.max_parts) break;
    n_split_parts += n_units(end_row_, kSplitTokens);
  }
  check(end_row_ > first_row || n_rows == first_row, "attention: no memory for one row's parts");

  sort_segments();
  paths_.clear();
  path_rows_.clear();
  path_end_.clear();
  for (const AttentionSegment& s : rows_.segments) {
    find_paths(s);
    path_end_.push_back(static_cast<int32_t>(paths_.size()));
  }
  build_units(kGroupTokens);
  int64_t n_blocks = static_cast<int64_t>(items_.size()) * limits_.n_kv_heads;
  if (n_blocks < limits_.min_blocks && n_split_parts <= limits_.max_parts)
    build_units(kSplitTokens);
  return end_row_;
}

// Those with rows here, by their tables; a table may only grow behind a common prefix.
void AttentionPlan::sort_segments() {
  order_.clear();
  tables_.clear();
  table_of_.clear();
  for (size_t s = 0; s < rows_.segments.size(); ++s) {
    const AttentionSegment& segment = rows_.segments[s];
    bool here = segment.first_row < end_row_ && segment.first_row + segment.n_rows > first_row_;
    table_of_.push_back(static_cast<int32_t>(tables_.size()));
    if (!here) continue;
    order_.push_back(static_cast<int32_t>(s));
    tables_.insert(tables_.end(), segment.blocks.begin(), segment.blocks.end());
  }
  auto blocks = [&](int32_t s) { return rows_.segments[static_cast<size_t>(s)].blocks; };
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    std::span<const int32_t> x = blocks(a), y = blocks(b);
    size_t i = static_cast<size_t>(common_prefix(x, y));
    if (i == x.size() || i == y.size()) return x.size() != y.size() ? x.size() < y.size() : a < b;
    return x[i] < y[i];
  });
  shared_.clear();
  for (size_t i = 0; i < order_.size(); ++i)
    shared_.push_back(i == 0 ? 0 : common_prefix(blocks(order_[i - 1]), blocks(order_[i])));
}

// Plain rows and the first leaf's path, then what each other leaf's path adds. Leaves in order of
// their nodes, so the result is the same in every run.
void AttentionPlan::find_paths(const AttentionSegment& segment) {
  int32_t end = segment.first_row + segment.n_rows, node = segment.first_row;
  auto mask = [&](int32_t row) { return rows_.masks[static_cast<size_t>(row)]; };
  int32_t from = std::max(segment.first_row, first_row_), to = std::min(end, end_row_);
  if (from >= to) return;
  while (node < end && mask(node) == 0) ++node;
  int32_t first = static_cast<int32_t>(path_rows_.size());
  for (int32_t r = from; r < std::min(node, to); ++r) path_rows_.push_back(r);
  auto close = [&](int32_t path_row) {
    int32_t n = static_cast<int32_t>(path_rows_.size()) - first;
    if (n > 0) paths_.push_back({path_row, first, n});
    first += n;
  };
  if (node == end) return close(end - 1);

  const int32_t row_of_bit_0 = node - (std::bit_width(mask(node)) - 1);  // the last bit is its own
  uint64_t inner = 0, taken = 0;  // nodes with a descendant; nodes given to a path
  for (int32_t r = node; r < end; ++r) inner |= mask(r) & ~(uint64_t{1} << (r - row_of_bit_0));
  for (int32_t leaf = node; leaf < end; ++leaf) {
    if (inner >> (leaf - row_of_bit_0) & 1) continue;
    for (uint64_t left = mask(leaf) & ~taken; left != 0; left &= left - 1) {
      int32_t row = row_of_bit_0 + std::countr_zero(left);
      if (row >= std::max(node, from) && row < to) path_rows_.push_back(row);
    }
    taken |= mask(leaf);
    close(leaf);
  }
}

void AttentionPlan::build_units(int32_t unit) {
  unit_ = unit;
  n_parts_ = 0;
  items_.clear();
  runs_.clear();
  item_rows_.clear();
  row_parts_.clear();
  int32_t first_unit = INT32_MAX, end_unit = 0;
  for (int32_t r = first_row_; r < end_row_; ++r) {
    int32_t begin = begin_of(r) / unit, n = n_units(r, unit);
    row_parts_.push_back({n_parts_, n, begin, 0});
    n_parts_ += n;
    first_unit = std::min(first_unit, begin);
    end_unit = std::max(end_unit, begin + n);
  }
  for (int32_t u = first_unit; u < end_unit; ++u) {
    link_ = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      link_ = std::min(link_, shared_[i]);
      size_t s = static_cast<size_t>(order_[i]);
      for (int32_t p = s == 0 ? 0 : path_end_[s - 1]; p < path_end_[s]; ++p)
        if (add_path(paths_[static_cast<size_t>(p)], table_of_[s], u * unit, (u + 1) * unit))
          link_ = INT32_MAX;  // the next path of this segment has the same table
    }
    close_item();
  }
}

// The rows of a path that see keys in [first, end), into the open item or as many more as they
// need. Positions ascend along a path, so these rows stand together. False when there are none.
bool AttentionPlan::add_path(const Path& path, int32_t table, int32_t first, int32_t end) {
  std::span<const int32_t> rows(&path_rows_[static_cast<size_t>(path.first)],
                                static_cast<size_t>(path.n));
  auto last = [&](int32_t row) { return rows_.positions[static_cast<size_t>(row)] + 1; };
  while (!rows.empty() && last(rows.front()) <= first) rows = rows.subspan(1);
  while (!rows.empty() && begin_of(rows.back()) >= end) rows = rows.first(rows.size() - 1);
  if (rows.empty()) return false;
  while (!rows.empty()) {
    int32_t n = std::min(max_rows_, static_cast<int32_t>(rows.size()));
    std::span<const int32_t> taken = rows.first(static_cast<size_t>(n));
    rows = rows.subspan(taken.size());
    Member m{table,
             path.path_row,
             rows_.visible[static_cast<size_t>(path.path_row)],
             std::max(first, begin_of(taken.front())),
             std::min(end, last(taken.back())),
             0,
             n};
    if (!join(m)) {
      close_item();
      items_.push_back({static_cast<int32_t>(item_rows_.size()), 0, 0, 0});
      members_.push_back(m);
      common_begin_ = m.begin, common_end_ = m.end;
    }
    for (int32_t row : taken) {
      const AttentionRowParts& parts = row_parts_[static_cast<size_t>(row - first_row_)];
      item_rows_.push_back({row, parts.first + first / unit_ - parts.unit});
    }
    link_ = INT32_MAX;
  }
  return true;
}

// True when the rows are in the open item now.
bool AttentionPlan::join(const Member& m) {
  if (members_.empty()) return false;
  const Member& back = members_.back();
  if (back.first + back.n + m.n > max_rows_) return false;
  int64_t end = std::min(int64_t{link_} * limits_.block_tokens, int64_t{common_end_});
  for (const Member& x : members_) end = std::min<int64_t>(end, x.visible);
  int32_t common_end = round_down(
      static_cast<int32_t>(std::min({end, int64_t{m.end}, int64_t{m.visible}})), kTileTokens);
  int32_t common_begin = std::min(common_begin_, m.begin), common = common_end - common_begin;
  int32_t longest = m.end - common_end, n_rests = m.end > common_end;
  for (const Member& x : members_) {
    longest = std::max(longest, x.end - common_end);
    n_rests += x.end > common_end;
  }
  if (common <= 0 || longest > common || n_rests > kMaxRests) return false;
  common_begin_ = common_begin;
  common_end_ = common_end;
  Member joined = m;
  joined.first = back.first + back.n;
  members_.push_back(joined);
  return true;
}

void AttentionPlan::close_item() {
  if (members_.empty()) return;
  AttentionItem& item = items_.back();
  item.n_rows = members_.back().first + members_.back().n;
  item.first_run = static_cast<int32_t>(runs_.size());
  const Member& m = members_.front();
  if (members_.size() == 1) {
    runs_.push_back({m.table, m.path_row, m.visible, m.begin, m.end, 0, m.n, 0});
  } else {
    runs_.push_back(
        {m.table, m.path_row, m.visible, common_begin_, common_end_, 0, item.n_rows, 0});
    for (const Member& x : members_)
      if (x.end > common_end_)
        runs_.push_back({x.table, x.path_row, x.visible, std::max(common_end_, x.begin), x.end,
                         x.first, x.n, 0});
  }
  item.n_runs = static_cast<int32_t>(runs_.size()) - item.first_run;
  members_.clear();
}

}  // namespace pf::kernels
