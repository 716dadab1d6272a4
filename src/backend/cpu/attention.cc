#include "backend/cpu/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "sampling/fast_math.h"

namespace pf {
namespace {

// Rows of one unit: beyond this the keys of a tile no longer stay beside the rows in the cache.
constexpr int32_t kUnitRows = 32;

int64_t round_down(int64_t x, int64_t unit) { return x / unit * unit; }
int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

const Segment& segment_of(const Batch& batch, int32_t row) {
  return batch.segments[static_cast<size_t>(batch.row_segment[static_cast<size_t>(row)])];
}

// The slot of a position of a tree row: the committed ones, then its ancestors in order.
int64_t slot_of(const Batch& batch, const Segment& s, int32_t row, int64_t position) {
  size_t r = static_cast<size_t>(row);
  if (position < batch.visible[r]) return position;
  uint64_t mask = batch.masks[r];
  for (int64_t skip = position - batch.visible[r]; skip > 0; --skip) mask &= mask - 1;
  return s.node_slot(std::countr_zero(mask));
}

}  // namespace

KvPlane::KvPlane(int64_t n_layers, int32_t n_blocks, int64_t n_kv_heads, int32_t block_tokens,
                 int64_t head_width, bool f32)
    : n_layers_(n_layers),
      n_blocks_(n_blocks),
      n_kv_heads_(n_kv_heads),
      block_tokens_(block_tokens),
      head_width_(head_width),
      element_bytes_(f32 ? 4 : 2),
      data_(static_cast<size_t>(n_layers * n_blocks * 2 * n_kv_heads * block_tokens * head_width *
                                element_bytes_)) {}

void KvPlane::find(int64_t layer, int64_t kv_head, const Batch& batch, int32_t row, int64_t begin,
                   int64_t end, const void** keys, const void** values) const {
  const Segment& s = segment_of(batch, row);
  int64_t plain = std::min<int64_t>(end, batch.visible[static_cast<size_t>(row)]);
  int64_t token = head_width_ * element_bytes_, to_values = n_kv_heads_ * block_tokens_ * token;
  int64_t i = 0;
  for (int64_t p = begin; p < plain;) {  // block by block
    const std::byte* key = slot(layer, s, p, 0, kv_head);
    int64_t stop = std::min(plain, (p / block_tokens_ + 1) * block_tokens_);
    for (; p < stop; ++p, ++i, key += token) {
      keys[i] = key;
      values[i] = key + to_values;
    }
  }
  for (int64_t p = std::max(begin, plain); p < end; ++p, ++i) {
    int64_t node = slot_of(batch, s, row, p);
    keys[i] = slot(layer, s, node, 0, kv_head);
    values[i] = slot(layer, s, node, 1, kv_head);
  }
}

void KvPlane::copy_block(BlockCopy copy) {
  size_t bytes =
      static_cast<size_t>(2 * n_kv_heads_ * block_tokens_ * head_width_ * element_bytes_);
  for (int64_t l = 0; l < n_layers_; ++l)
    std::memcpy(at(l, copy.to, 0, 0, 0), at(l, copy.from, 0, 0, 0), bytes);
}

void KvPlane::move_slot(const Segment& s, int64_t from, int64_t to) {
  size_t bytes = static_cast<size_t>(head_width_ * element_bytes_);
  for (int64_t l = 0; l < n_layers_; ++l)
    for (int which = 0; which < 2; ++which)
      for (int64_t g = 0; g < n_kv_heads_; ++g)
        std::memcpy(slot(l, s, to, which, g), slot(l, s, from, which, g), bytes);
}

Attention::Attention(int64_t n_heads, int64_t n_kv_heads, int64_t head_width,
                     int64_t sliding_window, int64_t max_rows, int64_t max_context, int n_threads)
    : n_heads_(n_heads),
      n_kv_heads_(n_kv_heads),
      head_width_(head_width),
      sliding_window_(sliding_window),
      states_(static_cast<size_t>(max_rows * ((max_context + kSplit) / kSplit) * n_heads *
                                  (head_width + 2) * 4)),
      pointers_(static_cast<size_t>(n_threads)) {
  size_t n_queries = static_cast<size_t>(kUnitRows * (n_heads / n_kv_heads));
  for (Pointers& p : pointers_) {
    p.keys.resize(kSplit);
    p.values.resize(kSplit);
    p.queries.resize(n_queries);
    p.states.resize(n_queries);
  }
}

int64_t Attention::begin_of(const Batch& batch, int32_t row) const {
  if (sliding_window_ <= 0) return first_position_;
  return std::max<int64_t>(first_position_,
                           batch.positions[static_cast<size_t>(row)] + 1 - sliding_window_);
}

void Attention::plan(const Batch& batch, const KvPlane& plane) {
  units_.clear();
  unit_rows_.clear();
  int64_t last = 0;
  for (int32_t p : batch.positions) last = std::max<int64_t>(last, p);
  n_splits_ = last / kSplit + 1;
  block_tokens_ = plane.block_tokens();
  for (int64_t split = 0; split < n_splits_; ++split) plan_split(batch, split);
}

void Attention::plan_split(const Batch& batch, int64_t split) {
  size_t first_block = static_cast<size_t>(split * kSplit / block_tokens_);
  size_t end_block = static_cast<size_t>(((split + 1) * kSplit - 1) / block_tokens_) + 1;
  order_.clear();
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const Segment& segment = batch.segments[s];
    int32_t last = segment.first_row + segment.n_rows - 1;  // no row of it lies further
    if (batch.slots[static_cast<size_t>(last)] >= split * kSplit)
      order_.push_back(static_cast<int32_t>(s));
  }
  auto blocks = [&](int32_t s) {
    std::span<const BlockId> all = batch.segments[static_cast<size_t>(s)].blocks;
    size_t from = std::min(first_block, all.size()), to = std::min(end_block, all.size());
    return all.subspan(from, to - from);
  };
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    auto x = blocks(a), y = blocks(b);
    auto order = std::lexicographical_compare_three_way(x.begin(), x.end(), y.begin(), y.end());
    return order != 0 ? order < 0 : a < b;
  });
  for (int32_t s : order_) {
    const Segment& segment = batch.segments[static_cast<size_t>(s)];
    for (int32_t r = segment.first_row; r < segment.first_row + segment.n_rows; ++r)
      if (begin_of(batch, r) < (split + 1) * kSplit &&
          batch.positions[static_cast<size_t>(r)] >= split * kSplit)
        add_to_unit(batch, split, r);
  }
}

// Joins the last unit when fewer keys are read that way than beside it, else begins a new one.
void Attention::add_to_unit(const Batch& batch, int64_t split, int32_t row) {
  const Segment& mine = segment_of(batch, row);
  int64_t begin = round_up(std::max(split * kSplit, begin_of(batch, row)), kKeyTile);
  int64_t end = std::min<int64_t>((split + 1) * kSplit, batch.visible[static_cast<size_t>(row)]);
  end = std::max(begin, round_down(end, kKeyTile));
  if (!units_.empty() && units_.back().split == split && units_.back().n_rows < kUnitRows) {
    Unit& u = units_.back();
    const Segment& other = segment_of(batch, unit_rows_[static_cast<size_t>(u.first_row)]);
    int64_t common_begin = std::max(begin, u.common_begin);
    int64_t common_end = std::min(end, u.common_end);
    if (&mine != &other) {
      size_t block = static_cast<size_t>(split * kSplit / block_tokens_);
      size_t n = std::min(mine.blocks.size(), other.blocks.size());
      while (block < n && mine.blocks[block] == other.blocks[block]) ++block;
      common_end =
          std::min(common_end, round_down(static_cast<int64_t>(block) * block_tokens_, kKeyTile));
    }
    // n rows read `common` once, and what it shrinks by n times; the new row would read all of its
    // own: together costs less when (n + 1 - 1) common' > (n - 1) common.
    int64_t n = u.n_rows, now = u.common_end - u.common_begin, then = common_end - common_begin;
    if (then > 0 && n * then > (n - 1) * now) {
      u.common_begin = common_begin;
      u.common_end = common_end;
      ++u.n_rows;
      unit_rows_.push_back(row);
      return;
    }
  }
  units_.push_back({split, static_cast<int32_t>(unit_rows_.size()), 1, begin, end});
  unit_rows_.push_back(row);
}

void Attention::attend_unit(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane,
                            int64_t layer, const Unit& unit, int64_t kv_head, const float* queries,
                            int64_t ldq, Pointers* at) {
  auto attend = plane.f32() ? kernels.attend_f32 : kernels.attend_bf16;
  int64_t heads = n_heads_ / n_kv_heads_, head = kv_head * heads, state_width = head_width_ + 2;
  std::span<const int32_t> rows(&unit_rows_[static_cast<size_t>(unit.first_row)],
                                static_cast<size_t>(unit.n_rows));
  for (size_t i = 0; i < rows.size(); ++i)
    for (int64_t h = 0; h < heads; ++h) {
      size_t q = i * static_cast<size_t>(heads) + static_cast<size_t>(h);
      at->queries[q] = queries + rows[i] * ldq + (head + h) * head_width_;
      at->states[q] = state(rows[i], unit.split) + (head + h) * state_width;
      std::fill(at->states[q], at->states[q] + state_width, 0.0f);
      at->states[q][0] = -INFINITY;
    }
  // Positions [begin, end) of `row`'s table, for n_rows rows from the unit's row `first` on.
  auto meet = [&](int32_t row, int64_t begin, int64_t end, size_t first, size_t n_rows) {
    if (begin >= end) return;
    plane.find(layer, kv_head, batch, row, begin, end, at->keys.data(), at->values.data());
    size_t q = first * static_cast<size_t>(heads);
    attend({at->queries.data() + q, static_cast<int64_t>(n_rows) * heads, head_width_,
            at->keys.data(), at->values.data(), end - begin, at->states.data() + q});
  };
  int64_t split_begin = unit.split * kSplit, split_end = split_begin + kSplit;
  for (size_t i = 0; i < rows.size(); ++i) {  // a window opens before the common tiles
    int64_t begin = std::max(split_begin, begin_of(batch, rows[i]));
    int64_t end =
        std::min<int64_t>(unit.common_begin, batch.positions[static_cast<size_t>(rows[i])] + 1);
    int64_t tile = std::min(end, round_up(begin, kKeyTile));
    meet(rows[i], begin, tile, i, 1);
    meet(rows[i], tile, end, i, 1);
  }
  meet(rows[0], unit.common_begin, unit.common_end, 0, rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    int64_t end = std::min<int64_t>(split_end, batch.positions[static_cast<size_t>(rows[i])] + 1);
    meet(rows[i], unit.common_end, end, i, 1);
  }
}

void Attention::fold(const Batch& batch, int64_t row, float* out) const {
  int64_t first = begin_of(batch, static_cast<int32_t>(row)) / kSplit;
  int64_t last = batch.positions[static_cast<size_t>(row)] / kSplit;
  for (int64_t h = 0; h < n_heads_; ++h) {
    float* total = state(row, first) + h * (head_width_ + 2);
    for (int64_t split = first + 1; split <= last; ++split) {
      const float* part = state(row, split) + h * (head_width_ + 2);
      float max = std::max(total[0], part[0]);
      float a = exp_nonpositive(total[0] - max), b = exp_nonpositive(part[0] - max);
      total[0] = max;
      for (int64_t i = 1; i < head_width_ + 2; ++i) total[i] = total[i] * a + part[i] * b;
    }
    float scale = 1.0f / total[1];
    for (int64_t d = 0; d < head_width_; ++d) out[h * head_width_ + d] = total[2 + d] * scale;
  }
}

void Attention::run(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane,
                    int64_t layer, const float* queries, int64_t ldq, float* out, int thread,
                    SpinBarrier& barrier) {
  int n_threads = static_cast<int>(pointers_.size());
  int64_t n_items = static_cast<int64_t>(units_.size()) * n_kv_heads_;
  for (int64_t i = thread; i < n_items; i += n_threads)
    attend_unit(kernels, batch, plane, layer, units_[static_cast<size_t>(i / n_kv_heads_)],
                i % n_kv_heads_, queries, ldq, &pointers_[static_cast<size_t>(thread)]);
  barrier.wait();
  Range rows = split_range(batch.n_rows(), 1, n_threads, thread);
  for (int64_t r = rows.begin; r < rows.end; ++r) fold(batch, r, out + r * n_heads_ * head_width_);
}

}  // namespace pf
